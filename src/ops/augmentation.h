/* Makes a sample's image from its pixels: the arithmetic of `prepare_images` on a device and of a loader on the host.
 */
#pragma once

#include "ops/pixels.h"
#include "lockstep/data.h"

/* Settings that passed lk__augmentation_check. They do not change once made, so any thread may use them. */
typedef struct lk_augmentation {
    lk_augment_opts opts; /* in evaluation everything but centering and standardization is off */
    uint64_t seed;
    int64_t channels;
    lk_plane_size size;
    float *mean, *divisor; /* [channels]; NULL: neither centered nor standardized, whatever opts say */
} lk_augmentation;

/* The purposes of lk_augment_opts' random choices, for lk_random_purpose. */
#define LK_AUGMENT_SHIFT "augment.shift"
#define LK_AUGMENT_FLIP "augment.flip"
#define LK_AUGMENT_CROP "augment.crop"
#define LK_AUGMENT_CUTOUT "augment.cutout"

/* The random choices for one sample. */
typedef struct lk_augment_choice {
    double shift_down, shift_right; /* in pixels, as for lk__pixels_shift */
    bool flipped;
    int64_t crop_down, crop_right;
    int64_t cutout_y, cutout_x;
} lk_augment_choice;

/* Errors: LK_ERR_ARGUMENT (a setting out of range or too large for the images). */
lk_status lk__augmentation_check(const lk_augment_opts *opts, lk_plane_size size);

/* The number of floats that lk__augmentation_apply needs as scratch; at least one. */
int64_t lk__augmentation_scratch(const lk_augmentation *augmentation);

void lk__augmentation_choose(const lk_augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk_augment_choice *choice);

/* Makes `image` [C,H,W] from the pixels of the sample with index `sample`. They must not overlap. */
void lk__augmentation_apply(const lk_augmentation *augmentation, lk_pixels pixels, int64_t epoch, int64_t sample,
                            float *scratch, float *image);
