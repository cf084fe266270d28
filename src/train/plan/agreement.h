/* Checks that processes which train together were started alike. */
#pragma once

#include "train/trainer.h"

/* Compare the options of all processes, and the checkpoint that they go on from; and later what follows from them: the
 * model, its values, the data and the kernels. Errors: LK_ERR_ARGUMENT, which names the rank that differs and the
 * field; those of lk_replicas_digest. */
lk_status lk__agree_on_options(const lk_trainer *trainer);
lk_status lk__agree_on_work(const lk_trainer *trainer);

/* Computes XXH3-64 of all labels and images; of images that a function gives, of up to 64 that are spread evenly,
 * because reading all of them may take as long as an epoch. data NULL: 0. Errors: those of lk_dataset_read,
 * LK_ERR_MEMORY. */
lk_status lk__hash_data(const lk_dataset *data, uint64_t *hash);

/* Hashes the splits whose images a function gives, so that lk__hash_split cannot fail. */
lk_status lk__hash_read_splits(lk_trainer *trainer);

/* The hash of a trainer's split; it is computed once. */
uint64_t lk__hash_split(lk_trainer *trainer, lk_split split);

/* Lists everything that has to be alike, as bytes to send. The caller frees *fields. */
lk_status lk__agreement_list(const lk_trainer *trainer, void **fields, size_t *bytes);

/* Compares two such lists, either of which may come from another process and be damaged. False: `reason` names the
 * field and both values. whose, others: how it calls the owner of each list, such as "the chief", "a worker on a".
 * same_kernels: the kernels have to be the same too, which equal bits require. */
bool lk__agreement_is_same(const void *first, size_t bytes, const void *other, size_t other_bytes, bool same_kernels,
                           const char *whose, const char *others, char *reason, size_t size);
