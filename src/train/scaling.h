/* The scaling report's parts: callbacks/measure_scaling.c makes it, with what scaling_exchange.c knows of the exchange
 * and exchange_time.c times of it, or, of parameter servers' workers, ps_report.c; scaling_model.c, and
 * scaling_servers.c for these, have what follows from its numbers; scaling_file.c has it in a file, scaling_folder.c
 * finds that in a folder. */
#ifndef LK_TRAIN_SCALING_H
#define LK_TRAIN_SCALING_H

#include "io/bytes.h"
#include "lockstep/scaling.h"

/* All numbers NAN or 0, all texts empty. */
void lk__scaling_clear(lk_scaling_report *report);

/* An object; name NULL: not a member of one. */
void lk__scaling_put(lk__bytes *out, const char *name, const lk_scaling_report *report);

/* As lk_scaling_read of a file. */
lk_status lk__scaling_read_file(const char *path, lk_scaling_report *report);

/* Looks in a folder of records, before this run's are there, for the last run on one device that lk_scaling_compare
 * takes and that was made on the same host. None is no error. */
lk_status lk__scaling_find_one_device(const char *dir, lk_scaling_report *report);

/* Other devices that one of so many exchanges with; with a storing device that does not compute, that one too. */
double lk__scaling_others(const lk_scaling_report *report, int64_t devices);

/* How often the bytes leave a device that are summed up in slices. */
double lk__scaling_slices(int64_t devices);

/* Of parameter-server: what one device would need for a batch, and what lk_scaling_exchange_seconds and
 * lk_scaling_predict say; *prediction is left as it is where it is false. */
double lk__servers_one_device_seconds(const lk_scaling_report *report);
double lk__servers_exchange_seconds(const lk_scaling_report *report, int64_t workers);
bool lk__servers_predict(const lk_scaling_report *report, int64_t workers, bool weak,
                         lk_scaling_prediction *prediction);

/* Whether the strategy has a storing device that is none of those that compute. */
bool lk__stores_beside(const lk_strategy *strategy);

/* The strategy's exchange of rows of `elements` f32 that each device has: their sum over all devices, and, where one of
 * them stores the variables, the fetching of as many. All processes ask for the same, and get the same: *seconds of the
 * quickest of some, each as long as the process took that was longest at it. Blocks. Errors: LK_ERR_MEMORY, those of
 * lk_device_sync. */
lk_status lk__time_exchange(lk_strategy *strategy, int64_t elements, double *seconds);

/* That of a small and of a large row; NAN: there is one device. */
lk_status lk__time_rows(const lk_trainer *trainer, double *small, double *large);

/* Latency, bandwidth and a step's amounts from these times, where they were taken. report: its `devices` and
 * `storing_devices` are set. */
void lk__put_exchange(const lk_trainer *trainer, double small, double large, lk_scaling_report *report);

#endif
