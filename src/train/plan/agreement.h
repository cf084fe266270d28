/* Checks that processes which train together were started alike. */
#pragma once

#include "train/trainer.h"

/* Compare the options of all processes; and later the model, the data and the kernels that follow from them. Errors:
 * LK_ERR_ARGUMENT, which names the rank that differs and the field. */
lk_status lk__agree_on_options(const lk_trainer *trainer);
lk_status lk__agree_on_work(const lk_trainer *trainer);

/* XXH3-64 of all labels and images. data NULL: 0. */
uint64_t lk__hash_data(const lk_dataset *data);

/* The same for a trainer's split; it is computed once. */
uint64_t lk__hash_split(lk_trainer *trainer, lk_split split);

/* Lists everything that has to be alike, as bytes to send. The caller frees *fields. */
lk_status lk__agreement_list(const lk_trainer *trainer, void **fields, size_t *bytes);

/* Compares two such lists, either of which may come from another process and be damaged. False: `reason` names the
 * field and both values. whose, others: how it calls the owner of each list, such as "the chief", "a worker on a".
 * same_kernels: the kernels have to be the same too, which equal bits require. */
bool lk__agreement_is_same(const void *first, size_t bytes, const void *other, size_t other_bytes, bool same_kernels,
                           const char *whose, const char *others, char *reason, size_t size);
