/* Augmentation as a loader uses it: settings that were checked once, and what is chosen for a sample. */
#ifndef LK_DATA_AUGMENT_H
#define LK_DATA_AUGMENT_H

#include "data/pixels.h"
#include "lockstep/data.h"

/* Immutable once made, free to be used by any thread. */
typedef struct lk__augmentation {
    lk_augment_opts opts; /* in evaluation all but centring and standardisation is off */
    uint64_t seed;
    uint64_t shift_purpose, flip_purpose, crop_purpose, cutout_purpose;
    int64_t channels;
    lk__plane_size size;
    float *mean, *divisor; /* [channels]; mean owns both; NULL: neither centred nor standardised */
} lk__augmentation;

/* What happens to one sample. */
typedef struct lk__augment_choice {
    double shift_down, shift_right; /* in pixels, as lk__pixels_shift takes them */
    bool flipped;
    int64_t crop_down, crop_right;
    int64_t cutout_y, cutout_x;
} lk__augment_choice;

/* `opts` NULL is nothing. Errors: LK_ERR_ARGUMENT (a setting out of range or too large for the images, moments missing
 * or of another number of channels), LK_ERR_MEMORY; lk__augmentation_free is fine after them. */
lk_status lk__augmentation_init(const lk_dataset *dataset, uint64_t seed, bool train, const lk_augment_opts *opts,
                                const lk_channel_moments *moments, lk__augmentation *augmentation);
void lk__augmentation_free(lk__augmentation *augmentation);

/* How many floats lk__augmentation_apply needs as scratch; at least one. */
int64_t lk__augmentation_scratch(const lk__augmentation *augmentation);

void lk__augmentation_choose(const lk__augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk__augment_choice *choice);

/* image [C,H,W] from bytes [C,H,W] of the sample with that index. */
void lk__augmentation_apply(const lk__augmentation *augmentation, const uint8_t *bytes, int64_t epoch, int64_t sample,
                            float *scratch, float *image);

#endif
