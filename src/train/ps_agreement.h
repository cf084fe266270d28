/* Whether a worker is about to train what the chief trains. */
#ifndef LK_TRAIN_PS_AGREEMENT_H
#define LK_TRAIN_PS_AGREEMENT_H

#include "train/trainer.h"

/* All that has to be alike, to be sent: *fields, to be freed. */
lk_status lk__agreement_list(const lk_trainer *trainer, void **fields, size_t *bytes);

/* Compares two of them. False: reason names the field, and what host has of it. same_kernels: whether kernels have to
 * be the same too, so that bits are. */
bool lk__agreement_is_same(const void *mine, size_t bytes, const void *theirs, size_t their_bytes, bool same_kernels,
                           const char *host, char *reason, size_t size);

#endif
