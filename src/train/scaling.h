/* The scaling report's parts: callbacks/measure_scaling.c makes it, exchange_time.c times the exchange for it;
 * scaling_model.c has what follows from its numbers, scaling_file.c has it in a file. */
#ifndef LK_TRAIN_SCALING_H
#define LK_TRAIN_SCALING_H

#include "io/bytes.h"
#include "lockstep/scaling.h"

/* All numbers NAN or 0, all texts empty. */
void lk__scaling_clear(lk_scaling_report *report);

/* An object; name NULL: not a member of one. */
void lk__scaling_put(lk__bytes *out, const char *name, const lk_scaling_report *report);

/* Looks in a folder of records, before this run's are there, for the last run on one device that lk_scaling_compare
 * takes and that was made on the same host. None is no error. */
lk_status lk__scaling_find_one_device(const char *dir, lk_scaling_report *report);

/* Sums over all devices of the strategy, of a row of `elements` f32 that each of them has. All processes ask for the
 * same, and get the same: *seconds of the quickest of some, each as long as the process took that was longest at it.
 * Blocks. Errors: LK_ERR_MEMORY, those of lk_device_sync. */
lk_status lk__time_exchange(lk_strategy *strategy, int64_t elements, double *seconds);

#endif
