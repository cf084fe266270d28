/* Makes a sample's image from its pixels: the arithmetic of `prepare_images` on a device and of a loader on the host.
 */
#pragma once

#include "ops/rand_augment.h"
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
#define LK_AUGMENT_VERTICAL_FLIP "augment.vertical_flip"
#define LK_AUGMENT_ROTATION "augment.rotation"
#define LK_AUGMENT_COLORS "augment.colors"
#define LK_AUGMENT_RAND "augment.rand"
#define LK_AUGMENT_ERASE "augment.erase"
#define LK_AUGMENT_MIXUP "augment.mixup"

enum { LK_RAND_CHOICES = 2, LK_RAND_MAGNITUDES = 30 };

/* The random choices for one sample. */
typedef struct lk_augment_choice {
    double shift_down, shift_right; /* in pixels, as for lk__pixels_shift */
    bool flipped;
    int64_t crop_down, crop_right;
    int64_t cutout_y, cutout_x;
    bool flipped_down;
    double degrees;              /* 0: not turned */
    double brightness, contrast; /* factors */
    struct {
        lk_rand_operation operation;
        bool negative;
    } rand[LK_RAND_CHOICES];
    int64_t erase_top, erase_left, erase_height, erase_width; /* height 0: nothing is erased */
    double share;                                             /* of the image itself in a mix; 1: there is none */
    uint32_t other;                                           /* decides on the other one: see lk__augmentation_other */
} lk_augment_choice;

/* Returns whether `opts` have only the changes that every kind of device makes. */
bool lk__augmentation_is_basic(const lk_augment_opts *opts);

/* Errors: LK_ERR_ARGUMENT (a setting out of range or too large for the images). */
lk_status lk__augmentation_check(const lk_augment_opts *opts, lk_plane_size size);

/* The number of floats that lk__augmentation_apply needs as scratch; at least one. */
int64_t lk__augmentation_scratch(const lk_augmentation *augmentation);

void lk__augmentation_choose(const lk_augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk_augment_choice *choice);

/* The sample, of a set of `count`, that is mixed with `sample`. */
int64_t lk__augmentation_other(const lk_augment_choice *choice, int64_t sample, int64_t count);

/* Makes `image` [C,H,W] from the pixels of the sample with index `sample`, but for mixup. They must not overlap. */
void lk__augmentation_apply(const lk_augmentation *augmentation, lk_pixels pixels, int64_t epoch, int64_t sample,
                            float *scratch, float *image);

/* Sets *pixels to those of a sample. They are used before the next call. */
typedef lk_status (*lk__pixels_fn)(void *user, int64_t sample, lk_pixels *pixels);

/* Makes `image` [C,H,W] of a sample of a set of `count`. Errors: those of `read`. */
lk_status lk__augmentation_make(const lk_augmentation *augmentation, lk__pixels_fn read, void *user, int64_t count,
                                int64_t epoch, int64_t sample, float *scratch, float *image);
