#include "ops/augmentation.h"
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

bool lk__augmentation_is_basic(const lk_augment_opts *opts)
{
    return !opts->vertical_flip && opts->rotation == 0 && opts->brightness == 0 && opts->contrast == 0 &&
           opts->erase == 0 && opts->mixup == 0 && opts->rand_augment == 0;
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

typedef struct words {
    uint32_t word[4];
} words;

static words augmentation_draw_block(const lk_augmentation *a, const char *purpose, int64_t epoch, int64_t sample,
                                     int block)
{
    lk_random_key key = {
        .seed = a->seed, .purpose = lk_random_purpose(purpose), .epoch = (uint64_t)epoch, .sample = (uint64_t)sample};
    words drawn;
    lk_random_block(&key, (uint64_t)block, drawn.word);
    return drawn;
}

static words augmentation_draw(const lk_augmentation *a, const char *purpose, int64_t epoch, int64_t sample)
{
    return augmentation_draw_block(a, purpose, epoch, sample, 0);
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

/* Uniform in [low, high). */
static double augmentation_random_in(uint32_t word, double low, double high)
{
    return low + (double)word * 0x1p-32 * (high - low);
}

/* Tries rectangles until one fits, as the paper does. */
static void augmentation_choose_erasing(const lk_augmentation *a, int64_t epoch, int64_t sample,
                                        lk_augment_choice *choice)
{
    enum { TRIES = 10 };
    words w = augmentation_draw(a, LK_AUGMENT_ERASE, epoch, sample);
    bool erases = augmentation_random_in(w.word[0], 0, 1) < a->opts.erase;
    for (int i = 1; i <= TRIES && erases; i++) {
        w = augmentation_draw_block(a, LK_AUGMENT_ERASE, epoch, sample, i);
        double area = augmentation_random_in(w.word[0], 0.02, 0.4) * (double)(a->size.height * a->size.width);
        double ratio = augmentation_random_in(w.word[1], 0.3, 1 / 0.3);
        int64_t height = (int64_t)(sqrt(area * ratio) + 0.5), width = (int64_t)(sqrt(area / ratio) + 0.5);
        if (height < 1 || width < 1 || height >= a->size.height || width >= a->size.width)
            continue;
        choice->erase_height = height;
        choice->erase_width = width;
        choice->erase_top = augmentation_random_below(w.word[2], a->size.height - height + 1);
        choice->erase_left = augmentation_random_below(w.word[3], a->size.width - width + 1);
        return;
    }
}

/* A number from Beta(alpha, alpha) by Jöhnk's method (1964), which becomes one from Beta(alpha + 1, alpha) if the
 * larger of it and its complement is as likely as it is large. Rounding hides in which last bits C libraries' pow()
 * differ. */
static void augmentation_choose_mixing(const lk_augmentation *a, int64_t epoch, int64_t sample,
                                       lk_augment_choice *choice)
{
    enum { TRIES = 32, PARTS = 256 };
    words w = augmentation_draw(a, LK_AUGMENT_MIXUP, epoch, sample);
    double share = 0.5;
    for (int i = 1; i <= TRIES; i++) {
        words pair = augmentation_draw_block(a, LK_AUGMENT_MIXUP, epoch, sample, i);
        double x = pow(augmentation_random_in(pair.word[0], 0x1p-32, 1), 1 / a->opts.mixup);
        double y = pow(augmentation_random_in(pair.word[1], 0x1p-32, 1), 1 / a->opts.mixup);
        if (x + y <= 1 && x + y > 0) {
            share = x / (x + y);
            break;
        }
    }
    if (augmentation_random_in(w.word[1], 0, 1) >= share)
        share = 1 - share;
    choice->share = floor(share * PARTS + 0.5) / PARTS;
    choice->other = w.word[0];
}

static void augmentation_choose_colors(const lk_augmentation *a, int64_t epoch, int64_t sample,
                                       lk_augment_choice *choice)
{
    const lk_augment_opts *opts = &a->opts;
    words w = augmentation_draw(a, LK_AUGMENT_COLORS, epoch, sample);
    choice->brightness = augmentation_random_in(w.word[0], 1 - opts->brightness, 1 + opts->brightness);
    choice->contrast = augmentation_random_in(w.word[1], 1 - opts->contrast, 1 + opts->contrast);
}

static void augmentation_choose_more(const lk_augmentation *a, int64_t epoch, int64_t sample, lk_augment_choice *choice)
{
    const lk_augment_opts *opts = &a->opts;
    if (opts->vertical_flip)
        choice->flipped_down = augmentation_draw(a, LK_AUGMENT_VERTICAL_FLIP, epoch, sample).word[0] >> 31;
    if (opts->rotation > 0) {
        words w = augmentation_draw(a, LK_AUGMENT_ROTATION, epoch, sample);
        choice->degrees = augmentation_random_in(w.word[0], -opts->rotation, opts->rotation);
    }
    if (opts->brightness > 0 || opts->contrast > 0)
        augmentation_choose_colors(a, epoch, sample, choice);
    if (opts->rand_augment) {
        words w = augmentation_draw(a, LK_AUGMENT_RAND, epoch, sample);
        for (int i = 0; i < LK_RAND_CHOICES; i++) {
            choice->rand[i].operation = (lk_rand_operation)augmentation_random_below(w.word[2 * i], LK_RAND_OPERATIONS);
            choice->rand[i].negative = w.word[2 * i + 1] >> 31;
        }
    }
    if (opts->erase > 0)
        augmentation_choose_erasing(a, epoch, sample, choice);
    if (opts->mixup > 0)
        augmentation_choose_mixing(a, epoch, sample, choice);
}

int64_t lk__augmentation_other(const lk_augment_choice *choice, int64_t sample, int64_t count)
{
    if (count < 2)
        return sample;
    int64_t other = augmentation_random_below(choice->other, count - 1);
    return other + (other >= sample);
}

void lk__augmentation_choose(const lk_augmentation *augmentation, int64_t epoch, int64_t sample,
                             lk_augment_choice *choice)
{
    const lk_augmentation *a = augmentation;
    const lk_augment_opts *opts = &a->opts;
    *choice = (lk_augment_choice){.brightness = 1, .contrast = 1, .share = 1};
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
    augmentation_choose_more(a, epoch, sample, choice);
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
        lk_pixel_map map = lk__pixels_rotation(choice->degrees);
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
    if (choice->brightness != 1)
        lk__color_brightness(&image, (float)choice->brightness);
    if (choice->contrast != 1)
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
    int64_t with = lk__augmentation_other(&choice, sample, count);
    float share = (float)choice.share;
    LK_TRY(read(user, with, &pixels));
    lk__augmentation_apply(a, pixels, epoch, with, scratch, other);
    for (int64_t i = 0; i < values; i++)
        image[i] = share * image[i] + (1 - share) * other[i];
    return LK_OK;
}
