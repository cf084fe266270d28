/* Makes the augmentation of a data set from the user's settings, checked once. */
#pragma once

#include "ops/augmentation.h"

/* Sets up `augmentation`; `opts` NULL augments nothing. Without `train` only centering and standardizing remain.
 * Errors: LK_ERR_ARGUMENT (a setting out of range or too large for the images, moments missing or of another number of
 * channels), LK_ERR_MEMORY; lk__augmentation_free may be called after them. */
lk_status lk__augmentation_init(const lk_dataset *dataset, uint64_t seed, bool train, const lk_augment_opts *opts,
                                const lk_channel_moments *moments, lk_augmentation *augmentation);
void lk__augmentation_free(lk_augmentation *augmentation);

/* Returns whether two valid texts of lk_augment_parse ask for the same changes. */
bool lk__augment_texts_agree(const char *a, const char *b);
