/* How a sample's image is made from its bytes: what `prepare_images` computes on a device, and a loader on the host. */
#ifndef LK_OPS_AUGMENTATION_H
#define LK_OPS_AUGMENTATION_H

#include "lockstep/data.h"
#include "ops/pixels.h"

/* Settings that lk__augmentation_check has seen. Immutable once made, free to be used by any thread. */
typedef struct lk__augmentation {
    lk_augment_opts opts; /* in evaluation all but centring and standardisation is off */
    uint64_t seed;
    int64_t channels;
    lk__plane_size size;
    float *mean, *divisor; /* [channels]; NULL: neither centred nor standardised, whatever opts say */
} lk__augmentation;

/* The names of lk_augment_opts' random choices, as lk_random_purpose takes them. */
#define LK_AUGMENT_SHIFT "augment.shift"
#define LK_AUGMENT_FLIP "augment.flip"
#define LK_AUGMENT_CROP "augment.crop"
#define LK_AUGMENT_CUTOUT "augment.cutout"

/* What happens to one sample. */
typedef struct lk__augment_choice {
    double shift_down, shift_right; /* in pixels, as lk__pixels_shift takes them */
    bool flipped;
    int64_t crop_down, crop_right;
    int64_t cutout_y, cutout_x;
} lk__augment_choice;

/* Errors: LK_ERR_ARGUMENT (a setting out of range or too large for the images). */
lk_status lk__augmentation_check(const lk_augment_opts *opts, lk__plane_size size);

/* How many floats lk__augmentation_apply needs as scratch; at least one. */
int64_t lk__augmentation_scratch(const lk__augmentation *augmentation);

void lk__augmentation_choose(const lk__augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk__augment_choice *choice);

/* image [C,H,W] from bytes [C,H,W] of the sample with that index. */
void lk__augmentation_apply(const lk__augmentation *augmentation, const uint8_t *bytes, int64_t epoch, int64_t sample,
                            float *scratch, float *image);

#endif
