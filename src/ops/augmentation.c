#include "ops/augmentation.h"
#include "base/status.h"
#include "lockstep/random.h"

#include <inttypes.h>
#include <string.h>

/* --- settings ----------------------------------------------------------------------------------------------------- */

static lk_status augmentation_check_share(const char *name, double share)
{
    if (!(share >= 0 && share < 1))
        LK_FAIL(LK_ERR_ARGUMENT, "%s %g: expected a share of the image's size, at least 0 and below 1", name, share);
    return LK_OK;
}

lk_status lk__augmentation_check(const lk_augment_opts *opts, lk_plane_size size)
{
    int64_t side = size.height < size.width ? size.height : size.width;
    LK_TRY(augmentation_check_share("width shift", opts->width_shift));
    LK_TRY(augmentation_check_share("height shift", opts->height_shift));
    if (opts->crop_padding < 0 || opts->crop_padding >= side)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--augment crop=%" PRId64 ": expected 0 to %" PRId64 " for images of %" PRId64 "x%" PRId64,
                opts->crop_padding, side - 1, size.height, size.width);
    if (opts->cutout < 0 || opts->cutout > side)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--augment cutout=%" PRId64 ": expected 0 to %" PRId64 " for images of %" PRId64 "x%" PRId64,
                opts->cutout, side, size.height, size.width);
    return LK_OK;
}

/* --- choices ------------------------------------------------------------------------------------------------------ */

typedef struct words {
    uint32_t word[4];
} words;

static words augmentation_draw(const lk_augmentation *a, const char *purpose, int64_t epoch, int64_t sample)
{
    lk_random_key key = {
        .seed = a->seed, .purpose = lk_random_purpose(purpose), .epoch = (uint64_t)epoch, .sample = (uint64_t)sample};
    words drawn;
    lk_random_block(&key, 0, drawn.word);
    return drawn;
}

/* Uniform in [-share, share) times the size. Its absolute value stays below the size after rounding too: the greatest
 * share is 1 - 2^-53, and (1 - 2^-53) * size is nearer to the number below size than to size. */
static double augmentation_random_shift(uint32_t word, double share, int64_t size)
{
    return ((double)word * 0x1p-31 - 1.0) * share * (double)size;
}

/* Uniform in [0, bound), up to a bias of bound / 2^32. */
static int64_t augmentation_random_below(uint32_t word, int64_t bound)
{
    return (int64_t)((uint64_t)word * (uint64_t)bound >> 32);
}

void lk__augmentation_choose(const lk_augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk_augment_choice *choice)
{
    const lk_augmentation *a = augmentation;
    const lk_augment_opts *opts = &a->opts;
    *choice = (lk_augment_choice){0};
    if (opts->height_shift > 0 || opts->width_shift > 0) {
        words w = augmentation_draw(a, LK_AUGMENT_SHIFT, epoch, sample);
        choice->shift_down = augmentation_random_shift(w.word[0], opts->height_shift, a->size.height);
        choice->shift_right = augmentation_random_shift(w.word[1], opts->width_shift, a->size.width);
    }
    if (opts->horizontal_flip)
        choice->flipped = augmentation_draw(a, LK_AUGMENT_FLIP, epoch, sample).word[0] >> 31;
    if (opts->crop_padding) {
        words w = augmentation_draw(a, LK_AUGMENT_CROP, epoch, sample);
        choice->crop_down = augmentation_random_below(w.word[0], 2 * opts->crop_padding + 1) - opts->crop_padding;
        choice->crop_right = augmentation_random_below(w.word[1], 2 * opts->crop_padding + 1) - opts->crop_padding;
    }
    if (opts->cutout) {
        words w = augmentation_draw(a, LK_AUGMENT_CUTOUT, epoch, sample);
        choice->cutout_y = augmentation_random_below(w.word[0], a->size.height);
        choice->cutout_x = augmentation_random_below(w.word[1], a->size.width);
    }
}

/* --- images ------------------------------------------------------------------------------------------------------- */

static int64_t augmentation_plane_pixels(const lk_augmentation *a)
{
    return a->size.height * a->size.width;
}

int64_t lk__augmentation_scratch(const lk_augmentation *augmentation)
{
    return 2 * augmentation_plane_pixels(augmentation) + augmentation->size.width + 1;
}

/* The buffers that passes over a plane write to: two planes of scratch in turn, and the image in the last pass. */
typedef struct relay {
    int left; /* passes to come */
    float *scratch[2];
    float *image;
} relay;

static float *relay_next(relay *r)
{
    return --r->left ? r->scratch[r->left % 2] : r->image;
}

static void augmentation_move_pixels(const lk_augmentation *a, const lk_augment_choice *choice, lk_pixels plane,
                                     float *scratch, float *image)
{
    int64_t pixels = augmentation_plane_pixels(a);
    bool shifted = choice->shift_down != 0 || choice->shift_right != 0;
    bool cropped = choice->crop_down != 0 || choice->crop_right != 0;
    relay r = {.left = 1 + shifted + choice->flipped + cropped, .scratch = {scratch, scratch + pixels}, .image = image};
    const float *from = plane.floats;
    float *to;
    if (plane.bytes) {
        from = to = relay_next(&r);
        lk__pixels_from_bytes(plane.bytes, pixels, to);
    } else if (--r.left == 0) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): a plane has floats or bytes */
        memcpy(image, from, (size_t)pixels * sizeof *image);
    }
    if (shifted) {
        to = relay_next(&r);
        lk__pixels_shift(from, a->size, choice->shift_down, choice->shift_right, scratch + 2 * pixels, to);
        from = to;
    }
    if (choice->flipped) {
        to = relay_next(&r);
        lk__pixels_flip(from, a->size, to);
        from = to;
    }
    if (cropped)
        lk__pixels_crop(from, a->size, choice->crop_down, choice->crop_right, relay_next(&r));
}

void lk__augmentation_apply(const lk_augmentation *augmentation, lk_pixels pixels, int64_t epoch, int64_t sample,
                            float *scratch, float *image)
{
    const lk_augmentation *a = augmentation;
    int64_t count = augmentation_plane_pixels(a);
    lk_augment_choice choice;
    lk__augmentation_choose(a, epoch, sample, &choice);
    for (int64_t c = 0; c < a->channels; c++, image += count) {
        lk_pixels plane = {pixels.bytes ? pixels.bytes + c * count : NULL,
                           pixels.floats ? pixels.floats + c * count : NULL};
        augmentation_move_pixels(a, &choice, plane, scratch, image);
        if (a->mean)
            lk__pixels_normalize(image, count, a->mean[c], a->divisor[c]);
        if (a->opts.cutout)
            lk__pixels_cut_out(image, a->size, choice.cutout_y, choice.cutout_x, a->opts.cutout);
    }
}
