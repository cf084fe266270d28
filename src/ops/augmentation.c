#include "ops/augmentation.h"
#include "base/minmax.h"
#include "base/status.h"
#include "lockstep/random.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- settings ----------------------------------------------------------------------------------------------------- */

static lk_status augmentation_check_share(const char *name, double share)
{
    if (!(share >= 0 && share < 1))
        LK_FAIL(LK_ERR_ARGUMENT, "%s %g: expected a share of the image's size, at least 0 and below 1", name, share);
    return LK_OK;
}

static lk_status augmentation_check_most(const char *word, double value, double most)
{
    if (!(value >= 0 && value <= most))
        LK_FAIL(LK_ERR_ARGUMENT, "--augment %s=%g: expected 0 to %g", word, value, most);
    return LK_OK;
}

lk_status lk__augmentation_check(const lk_augment_opts *opts, lk_plane_size size)
{
    int64_t side = size.height < size.width ? size.height : size.width;
    LK_TRY(augmentation_check_share("width shift", opts->width_shift));
    LK_TRY(augmentation_check_share("height shift", opts->height_shift));
    LK_TRY(augmentation_check_most("rotate", opts->rotation, 180));
    LK_TRY(augmentation_check_most("brightness", opts->brightness, 1));
    LK_TRY(augmentation_check_most("contrast", opts->contrast, 1));
    LK_TRY(augmentation_check_most("erase", opts->erase, 1));
    LK_TRY(augmentation_check_most("mixup", opts->mixup, 1));
    LK_TRY(augmentation_check_most("rand", (double)opts->rand_augment, LK_RAND_MAGNITUDES));
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

lk_random_key lk__augment_key(uint64_t seed, lk_augment_purpose purpose)
{
    static const char *const names[] = {
        [LK_AUGMENT_SHIFT] = "augment.shift",   [LK_AUGMENT_FLIP] = "augment.flip",
        [LK_AUGMENT_CROP] = "augment.crop",     [LK_AUGMENT_CUTOUT] = "augment.cutout",
        [LK_AUGMENT_COLORS] = "augment.colors", [LK_AUGMENT_VERTICAL_FLIP] = "augment.vertical_flip",
        [LK_AUGMENT_RAND] = "augment.rand",     [LK_AUGMENT_ERASE] = "augment.erase",
        [LK_AUGMENT_MIXUP] = "augment.mixup",   [LK_AUGMENT_ROTATION] = "augment.rotation",
    };
    return (lk_random_key){.seed = seed, .purpose = lk_random_purpose(names[purpose])};
}

/* The integral of t^(p - 1) (1 - t)^(q - 1) from 0 to x, for x at most 1/2, is x^p times a series in x: the powers of
 * 1 - t are series in t. */
enum { BETA_TERMS = 48 };

typedef struct beta {
    double p, term[BETA_TERMS];
} beta;

static beta augmentation_beta(double p, double q, double scale)
{
    beta series = {.p = p};
    double coefficient = scale;
    for (int n = 0; n < BETA_TERMS; n++) {
        series.term[n] = coefficient / (p + n);
        coefficient *= (n + 1 - q) / (n + 1);
    }
    return series;
}

static double augmentation_beta_integral(const beta *series, double x)
{
    double sum = 0;
    for (int n = BETA_TERMS - 1; n >= 0; n--)
        sum = sum * x + series->term[n];
    return pow(x, series->p) * sum;
}

/* Sets the bounds between shares from Beta(alpha + 1, alpha) that are rounded to different parts. Rounding to 32 bits
 * hides in which last bits C libraries' pow() differ. Both integrals are scaled by alpha, so that none overflows. */
static void augmentation_init_mixing(double alpha, uint32_t mixing[LK_MIXUP_PARTS])
{
    beta low = augmentation_beta(alpha + 1, alpha, alpha), high = augmentation_beta(alpha, alpha + 1, alpha);
    double all = augmentation_beta_integral(&low, 0.5) + augmentation_beta_integral(&high, 0.5);
    for (int i = 0; i < LK_MIXUP_PARTS; i++) {
        double x = (i + 0.5) / LK_MIXUP_PARTS;
        double below =
            x <= 0.5 ? augmentation_beta_integral(&low, x) / all : 1 - augmentation_beta_integral(&high, 1 - x) / all;
        mixing[i] = (uint32_t)lk__min((int64_t)(below * 0x1p32 + 0.5), UINT32_MAX);
    }
}

void lk__augment_chances_init(const lk_augment_opts *opts, uint64_t seed, lk_augment_chances *chances)
{
    *chances = (lk_augment_chances){0};
    for (int i = 0; i < LK_AUGMENT_PURPOSES; i++) {
        lk_random_key key = lk__augment_key(seed, (lk_augment_purpose)i);
        uint32_t counter[4];
        lk__philox_start(&key, chances->key[i], counter);
    }
    if (opts->mixup > 0)
        augmentation_init_mixing(opts->mixup, chances->mixing);
}

void lk__augmentation_choose(const lk_augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk_augment_choice *choice)
{
    const lk_augmentation *a = augmentation;
    lk__augment_choose(&a->opts, a->size, &a->chances, epoch, sample, choice);
}

/* --- images ------------------------------------------------------------------------------------------------------- */

static int64_t augmentation_plane_pixels(const lk_augmentation *a)
{
    return a->size.height * a->size.width;
}

int64_t lk__augmentation_scratch(const lk_augmentation *augmentation)
{
    int64_t plane = augmentation_plane_pixels(augmentation);
    int64_t other = augmentation->opts.mixup > 0 ? augmentation->channels * plane : 0; /* the image to mix with */
    return 2 * plane + augmentation->size.width + 1 + other;
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
    bool turned = choice->degrees != 0;
    relay r = {.left = 1 + shifted + choice->flipped + choice->flipped_down + turned + cropped,
               .scratch = {scratch, scratch + pixels},
               .image = image};
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
    if (choice->flipped_down) {
        to = relay_next(&r);
        lk__pixels_flip_down(from, a->size, to);
        from = to;
    }
    if (turned) {
        lk_pixel_map map = lk__pixel_rotation(choice->degrees);
        to = relay_next(&r);
        lk__pixels_map(from, a->size, &map, to);
        from = to;
    }
    if (cropped)
        lk__pixels_crop(from, a->size, choice->crop_down, choice->crop_right, relay_next(&r));
}

static void augmentation_change_colors(const lk_augmentation *a, const lk_augment_choice *choice, float *scratch,
                                       float *values)
{
    lk_color_image image = {.values = values, .channels = a->channels, .size = a->size, .scratch = scratch};
    if (a->opts.brightness > 0)
        lk__color_brightness(&image, (float)choice->brightness);
    if (a->opts.contrast > 0)
        lk__color_contrast(&image, (float)choice->contrast);
    for (int i = 0; i < LK_RAND_CHOICES && a->opts.rand_augment > 0; i++)
        lk__rand_apply(choice->rand[i].operation, (double)a->opts.rand_augment / LK_RAND_MAGNITUDES,
                       choice->rand[i].negative, &image);
}

void lk__augmentation_apply(const lk_augmentation *augmentation, lk_pixels pixels, int64_t epoch, int64_t sample,
                            float *scratch, float *image)
{
    const lk_augmentation *a = augmentation;
    int64_t count = augmentation_plane_pixels(a);
    lk_augment_choice choice;
    lk__augmentation_choose(a, epoch, sample, &choice);
    for (int64_t c = 0; c < a->channels; c++) {
        lk_pixels plane = {pixels.bytes ? pixels.bytes + c * count : NULL,
                           pixels.floats ? pixels.floats + c * count : NULL};
        augmentation_move_pixels(a, &choice, plane, scratch, image + c * count);
    }
    augmentation_change_colors(a, &choice, scratch, image);
    for (int64_t c = 0; c < a->channels; c++, image += count) {
        if (a->mean)
            lk__pixels_normalize(image, count, a->mean[c], a->divisor[c]);
        if (a->opts.cutout)
            lk__pixels_cut_out(image, a->size, choice.cutout_y, choice.cutout_x, a->opts.cutout);
        if (choice.erase_height > 0)
            lk__pixels_erase(image, a->size, choice.erase_top, choice.erase_left, choice.erase_height,
                             choice.erase_width);
    }
}

lk_status lk__augmentation_make(const lk_augmentation *augmentation, lk__pixels_fn read, void *user, int64_t count,
                                int64_t epoch, int64_t sample, float *scratch, float *image)
{
    const lk_augmentation *a = augmentation;
    int64_t values = a->channels * augmentation_plane_pixels(a);
    float *other = scratch + lk__augmentation_scratch(a) - values;
    lk_augment_choice choice;
    lk_pixels pixels;
    LK_TRY(read(user, sample, &pixels));
    lk__augmentation_apply(a, pixels, epoch, sample, scratch, image);
    if (a->opts.mixup == 0)
        return LK_OK;
    lk__augmentation_choose(a, epoch, sample, &choice);
    int64_t with = lk__augment_other(&choice, sample, count);
    float share = (float)choice.share;
    LK_TRY(read(user, with, &pixels));
    lk__augmentation_apply(a, pixels, epoch, with, scratch, other);
    for (int64_t i = 0; i < values; i++)
        image[i] = lk__pixel_mixed(image[i], other[i], share);
    return LK_OK;
}
