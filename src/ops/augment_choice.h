/* The random choices of augmentation, with the same bits on the host and in kernels of GPUs. */
#pragma once

#include "base/philox.h"
#include "ops/rand_augment.h"
#include "lockstep/data.h"

#include <string.h>

/* The purposes of random numbers: see lk__augment_key. */
typedef enum lk_augment_purpose {
    LK_AUGMENT_SHIFT,
    LK_AUGMENT_FLIP,
    LK_AUGMENT_CROP,
    LK_AUGMENT_CUTOUT,
    LK_AUGMENT_VERTICAL_FLIP,
    LK_AUGMENT_ROTATION,
    LK_AUGMENT_COLORS,
    LK_AUGMENT_RAND,
    LK_AUGMENT_ERASE,
    LK_AUGMENT_MIXUP,
    LK_AUGMENT_PURPOSES
} lk_augment_purpose;

enum {
    LK_RAND_CHOICES = 2,
    LK_RAND_MAGNITUDES = 30,
    LK_MIXUP_PARTS = 256, /* shares of mixup are multiples of 1 / LK_MIXUP_PARTS */
    LK_ERASE_TRIES = 10
};

/* The ranges that random erasing draws from. */
#define LK_ERASE_LEAST_AREA 0.02
#define LK_ERASE_MOST_AREA 0.4
#define LK_ERASE_LEAST_RATIO 0.3
#define LK_ERASE_MOST_RATIO (1 / 0.3)

/* The numbers that decide over choices, made once for settings and a seed. */
typedef struct lk_augment_chances {
    uint32_t key[LK_AUGMENT_PURPOSES][2]; /* Philox' */
    uint32_t mixing[LK_MIXUP_PARTS];      /* ascending: a share of k parts needs a word of at least mixing[k - 1] */
} lk_augment_chances;

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
    uint32_t other;                                           /* decides on the other one: see lk__augment_other */
} lk_augment_choice;

/* The stream of a purpose. */
lk_random_key lk__augment_key(uint64_t seed, lk_augment_purpose purpose);

void lk__augment_chances_init(const lk_augment_opts *opts, uint64_t seed, lk_augment_chances *chances);

/* --- drawing ------------------------------------------------------------------------------------------------------ */

typedef struct lk_augment_words {
    uint32_t word[4];
} lk_augment_words;

LK_EVERYWHERE static inline lk_augment_words lk__augment_draw(const lk_augment_chances *chances,
                                                              lk_augment_purpose purpose, int64_t epoch, int64_t sample,
                                                              uint32_t block)
{
    uint32_t counter[4];
    lk_augment_words drawn;
    lk__philox_count((uint64_t)epoch, (uint64_t)sample, block, counter);
    lk__philox(counter, chances->key[purpose], drawn.word);
    return drawn;
}

/* Uniform in [-share, share) times the size. Its absolute value stays below the size after rounding too: the greatest
 * share is 1 - 2^-53, and (1 - 2^-53) * size is nearer to the number below size than to size. */
LK_EVERYWHERE static inline double lk__augment_shift(uint32_t word, double share, int64_t size)
{
    return ((double)word * 0x1p-31 - 1.0) * share * (double)size;
}

/* Uniform in [0, bound), up to a bias of bound / 2^32. */
LK_EVERYWHERE static inline int64_t lk__augment_below(uint32_t word, int64_t bound)
{
    return (int64_t)((uint64_t)word * (uint64_t)bound >> 32);
}

/* Uniform in [low, high). */
LK_EVERYWHERE static inline double lk__augment_in(uint32_t word, double low, double high)
{
    return low + (double)word * 0x1p-32 * (high - low);
}

/* Tries rectangles until one fits, as the paper does. */
LK_EVERYWHERE static inline void lk__augment_choose_erasing(const lk_augment_opts *opts, lk_plane_size size,
                                                            const lk_augment_chances *chances, int64_t epoch,
                                                            int64_t sample, lk_augment_choice *choice)
{
    lk_augment_words w = lk__augment_draw(chances, LK_AUGMENT_ERASE, epoch, sample, 0);
    bool erases = lk__augment_in(w.word[0], 0, 1) < opts->erase;
    for (uint32_t i = 1; i <= LK_ERASE_TRIES && erases; i++) {
        w = lk__augment_draw(chances, LK_AUGMENT_ERASE, epoch, sample, i);
        double area =
            lk__augment_in(w.word[0], LK_ERASE_LEAST_AREA, LK_ERASE_MOST_AREA) * (double)(size.height * size.width);
        double ratio = lk__augment_in(w.word[1], LK_ERASE_LEAST_RATIO, LK_ERASE_MOST_RATIO);
        int64_t height = (int64_t)(sqrt(area * ratio) + 0.5), width = (int64_t)(sqrt(area / ratio) + 0.5);
        if (height < 1 || width < 1 || height >= size.height || width >= size.width)
            continue;
        choice->erase_height = height;
        choice->erase_width = width;
        choice->erase_top = lk__augment_below(w.word[2], size.height - height + 1);
        choice->erase_left = lk__augment_below(w.word[3], size.width - width + 1);
        return;
    }
}

LK_EVERYWHERE static inline void lk__augment_choose_mixing(const lk_augment_chances *chances, int64_t epoch,
                                                           int64_t sample, lk_augment_choice *choice)
{
    lk_augment_words w = lk__augment_draw(chances, LK_AUGMENT_MIXUP, epoch, sample, 0);
    int parts = 0;
    for (int i = 0; i < LK_MIXUP_PARTS; i++)
        parts += w.word[1] >= chances->mixing[i];
    choice->share = (double)parts / LK_MIXUP_PARTS;
    choice->other = w.word[0];
}

LK_EVERYWHERE static inline void lk__augment_choose(const lk_augment_opts *opts, lk_plane_size size,
                                                    const lk_augment_chances *chances, int64_t epoch, int64_t sample,
                                                    lk_augment_choice *choice)
{
    lk_augment_words w;
    memset(choice, 0, sizeof *choice);
    choice->brightness = choice->contrast = choice->share = 1;
    if (opts->height_shift > 0 || opts->width_shift > 0) {
        w = lk__augment_draw(chances, LK_AUGMENT_SHIFT, epoch, sample, 0);
        choice->shift_down = lk__augment_shift(w.word[0], opts->height_shift, size.height);
        choice->shift_right = lk__augment_shift(w.word[1], opts->width_shift, size.width);
    }
    if (opts->horizontal_flip)
        choice->flipped = lk__augment_draw(chances, LK_AUGMENT_FLIP, epoch, sample, 0).word[0] >> 31;
    if (opts->vertical_flip)
        choice->flipped_down = lk__augment_draw(chances, LK_AUGMENT_VERTICAL_FLIP, epoch, sample, 0).word[0] >> 31;
    if (opts->rotation > 0) {
        w = lk__augment_draw(chances, LK_AUGMENT_ROTATION, epoch, sample, 0);
        choice->degrees = lk__augment_in(w.word[0], -opts->rotation, opts->rotation);
    }
    if (opts->crop_padding > 0) {
        w = lk__augment_draw(chances, LK_AUGMENT_CROP, epoch, sample, 0);
        choice->crop_down = lk__augment_below(w.word[0], 2 * opts->crop_padding + 1) - opts->crop_padding;
        choice->crop_right = lk__augment_below(w.word[1], 2 * opts->crop_padding + 1) - opts->crop_padding;
    }
    if (opts->brightness > 0 || opts->contrast > 0) {
        w = lk__augment_draw(chances, LK_AUGMENT_COLORS, epoch, sample, 0);
        choice->brightness = lk__augment_in(w.word[0], 1 - opts->brightness, 1 + opts->brightness);
        choice->contrast = lk__augment_in(w.word[1], 1 - opts->contrast, 1 + opts->contrast);
    }
    if (opts->rand_augment > 0) {
        w = lk__augment_draw(chances, LK_AUGMENT_RAND, epoch, sample, 0);
        for (int i = 0; i < LK_RAND_CHOICES; i++) {
            choice->rand[i].operation = (lk_rand_operation)lk__augment_below(w.word[2 * i], LK_RAND_OPERATIONS);
            choice->rand[i].negative = w.word[2 * i + 1] >> 31;
        }
    }
    if (opts->cutout > 0) {
        w = lk__augment_draw(chances, LK_AUGMENT_CUTOUT, epoch, sample, 0);
        choice->cutout_y = lk__augment_below(w.word[0], size.height);
        choice->cutout_x = lk__augment_below(w.word[1], size.width);
    }
    if (opts->erase > 0)
        lk__augment_choose_erasing(opts, size, chances, epoch, sample, choice);
    if (opts->mixup > 0)
        lk__augment_choose_mixing(chances, epoch, sample, choice);
}

/* The sample, of a set of `count`, that is mixed with `sample`. */
LK_EVERYWHERE static inline int64_t lk__augment_other(const lk_augment_choice *choice, int64_t sample, int64_t count)
{
    if (count < 2)
        return sample;
    int64_t other = lk__augment_below(choice->other, count - 1);
    return other + (other >= sample);
}
