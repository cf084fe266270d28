/* Augmentation as a loader uses it: settings for a data set, checked once. */
#ifndef LK_DATA_AUGMENT_H
#define LK_DATA_AUGMENT_H

#include "ops/augmentation.h"

/* `opts` NULL is nothing. Errors: LK_ERR_ARGUMENT (a setting out of range or too large for the images, moments missing
 * or of another number of channels), LK_ERR_MEMORY; lk__augmentation_free is fine after them. */
lk_status lk__augmentation_init(const lk_dataset *dataset, uint64_t seed, bool train, const lk_augment_opts *opts,
                                const lk_channel_moments *moments, lk__augmentation *augmentation);
void lk__augmentation_free(lk__augmentation *augmentation);

#endif
