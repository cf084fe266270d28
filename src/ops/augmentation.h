/* Makes a sample's image from its pixels: the arithmetic of `prepare_images` on a device and of a loader on the host.
 */
#pragma once

#include "ops/augment_choice.h"

/* Settings that passed lk__augmentation_check. They do not change once made, so any thread may use them. */
typedef struct lk_augmentation {
    lk_augment_opts opts; /* in evaluation everything but centering and standardization is off */
    lk_augment_chances chances;
    int64_t channels;
    lk_plane_size size;
    float *mean, *divisor; /* [channels]; NULL: neither centered nor standardized, whatever opts say */
} lk_augmentation;

/* Errors: LK_ERR_ARGUMENT (a setting out of range or too large for the images). */
lk_status lk__augmentation_check(const lk_augment_opts *opts, lk_plane_size size);

/* The number of floats that lk__augmentation_apply needs as scratch; at least one. */
int64_t lk__augmentation_scratch(const lk_augmentation *augmentation);

void lk__augmentation_choose(const lk_augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk_augment_choice *choice);

/* Makes `image` [C,H,W] from the pixels of the sample with index `sample`, but for mixup. They must not overlap. */
void lk__augmentation_apply(const lk_augmentation *augmentation, lk_pixels pixels, int64_t epoch, int64_t sample,
                            float *scratch, float *image);

/* Sets *pixels to those of a sample. They are used before the next call. */
typedef lk_status (*lk__pixels_fn)(void *user, int64_t sample, lk_pixels *pixels);

/* Makes `image` [C,H,W] of a sample of a set of `count`. Errors: those of `read`. */
lk_status lk__augmentation_make(const lk_augmentation *augmentation, lk__pixels_fn read, void *user, int64_t count,
                                int64_t epoch, int64_t sample, float *scratch, float *image);
