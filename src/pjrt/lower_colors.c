/* Changes of prepare_images that change colors, and RandAugment: ops/color_pixels.h and ops/rand_augment.h on all
 * images [N, C, H, W] of a call. The operation of RandAugment differs from sample to sample, so all are computed, and
 * each sample takes its own. */
#include "pjrt/lower_images.h"

enum { ROWS = 2, COLUMNS = 3, PLANE = 1 << ROWS | 1 << COLUMNS };

static lk_hlo lower_colors_f32(lk_lowering *l, double value)
{
    return lk__hlo_number(l, LK_F32, value);
}

static lk_hlo lower_colors_clip(lk_lowering *l, lk_hlo x)
{
    lk_hlo positive = lk__hlo_binary(l, "maximum", x, lower_colors_f32(l, 0));
    return lk__hlo_binary(l, "minimum", positive, lower_colors_f32(l, 1));
}

/* lk__color_mix */
static lk_hlo lower_colors_mix(lk_lowering *l, lk_hlo other, lk_hlo x, lk_hlo factor)
{
    lk_hlo part = lk__hlo_rounded_mul(l, factor, lk__hlo_sub(l, x, other));
    return lower_colors_clip(l, lk__hlo_add(l, other, part));
}

/* lk__color_gray: [N, 1, H, W] */
static lk_hlo lower_colors_gray(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    static const double luma[] = {0.299f, 0.587f, 0.114f};
    lk_hlo sum = lk__hlo_slice_axis(l, images, 1, 0, 1);
    if (s->channels == 3)
        sum = lk__hlo_rounded_mul(l, sum, lower_colors_f32(l, luma[0]));
    for (int64_t c = 1; c < s->channels; c++) {
        lk_hlo plane = lk__hlo_slice_axis(l, images, 1, c, c + 1);
        if (s->channels == 3)
            plane = lk__hlo_rounded_mul(l, plane, lower_colors_f32(l, luma[c]));
        sum = lk__hlo_add(l, sum, plane);
    }
    return s->channels == 3 ? sum : lk__hlo_div(l, sum, lower_colors_f32(l, (double)s->channels));
}

static lk_hlo lower_colors_brightness(lk_lowering *l, lk_hlo images, lk_hlo factor)
{
    return lower_colors_clip(l, lk__hlo_mul(l, images, factor));
}

static lk_hlo lower_colors_contrast(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_hlo factor)
{
    double pixels = (double)(s->size.height * s->size.width);
    lk_hlo gray = lower_colors_clip(l, lower_colors_gray(l, s, images));
    lk_hlo units = lk__hlo_convert(l, lk__hlo_mul(l, gray, lower_colors_f32(l, 0x1p32)), LK_I64);
    lk_hlo sum = lk__hlo_convert(l, lk__hlo_reduce_keep(l, "add", units, PLANE), LK_F64);
    sum = lk__hlo_mul(l, sum, lk__hlo_number(l, LK_F64, 0x1p-32));
    lk_hlo mean = lk__hlo_convert(l, lk__hlo_div(l, sum, lk__hlo_number(l, LK_F64, pixels)), LK_F32);
    return lower_colors_mix(l, mean, images, factor);
}

/* --- RandAugment's operations ------------------------------------------------------------------------------------- */

static lk_hlo lower_colors_saturation(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_hlo factor)
{
    return s->channels == 3 ? lower_colors_mix(l, lower_colors_gray(l, s, images), images, factor) : images;
}

/* The pixels [begin, begin + size of the inside) along rows and columns. */
static lk_hlo lower_colors_inside(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, int64_t row, int64_t column)
{
    images = lk__hlo_slice_axis(l, images, ROWS, row, row + s->size.height - 2);
    return lk__hlo_slice_axis(l, images, COLUMNS, column, column + s->size.width - 2);
}

static lk_hlo lower_colors_sharpness(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_hlo factor)
{
    if (s->size.height < 3 || s->size.width < 3)
        return images;
    lk_hlo middle = lower_colors_inside(l, s, images, 1, 1);
    lk_hlo sum = lk__hlo_mul(l, middle, lower_colors_f32(l, 4));
    for (int64_t row = 0; row < 3; row++) {
        lk_hlo three =
            lk__hlo_add(l, lower_colors_inside(l, s, images, row, 0), lower_colors_inside(l, s, images, row, 1));
        sum = lk__hlo_add(l, sum, lk__hlo_add(l, three, lower_colors_inside(l, s, images, row, 2)));
    }
    lk_hlo blurred = lk__hlo_div(l, sum, lower_colors_f32(l, 13));
    return lk__hlo_replace(l, images, lower_colors_mix(l, blurred, middle, factor), (int64_t[]){0, 0, 1, 1});
}

/* lk__color_level, i64 */
static lk_hlo lower_colors_levels(lk_lowering *l, lk_hlo images)
{
    lk_hlo scaled = lk__hlo_rounded_mul(l, lower_colors_clip(l, images), lower_colors_f32(l, 255));
    return lk__hlo_convert(l, lk__hlo_add(l, scaled, lower_colors_f32(l, 0.5)), LK_I64);
}

static lk_hlo lower_colors_of_levels(lk_lowering *l, lk_hlo levels)
{
    return lk__hlo_div(l, lk__hlo_convert(l, levels, LK_F32), lower_colors_f32(l, 255));
}

static lk_hlo lower_colors_posterize(lk_lowering *l, lk_hlo images, int bits)
{
    int64_t mask = (LK_COLOR_LEVELS - 1) ^ ((1 << (8 - bits)) - 1);
    return lower_colors_of_levels(l, lk__hlo_and(l, lower_colors_levels(l, images), lk__hlo_integer(l, LK_I64, mask)));
}

static lk_hlo lower_colors_solarize(lk_lowering *l, lk_hlo images, float threshold)
{
    lk_hlo is_light = lk__hlo_compare(l, images, "GE", lower_colors_f32(l, (double)threshold));
    return lk__hlo_select(l, is_light, lk__hlo_sub(l, lower_colors_f32(l, 1), images), images);
}

static lk_hlo lower_colors_autocontrast(lk_lowering *l, lk_hlo images)
{
    lk_hlo least = lk__hlo_reduce_keep(l, "minimum", images, PLANE);
    lk_hlo most = lk__hlo_reduce_keep(l, "maximum", images, PLANE);
    lk_hlo stretched = lk__hlo_div(l, lk__hlo_sub(l, images, least), lk__hlo_sub(l, most, least));
    return lk__hlo_select(l, lk__hlo_compare(l, most, "GT", least), stretched, images);
}

/* How many pixels of each plane have each level: i64 [NC, 256], from levels [NC, HW]. */
static lk_hlo lower_colors_histogram(lk_lowering *l, lk_hlo levels)
{
    int64_t planes = levels.size[0], pixels = levels.size[1];
    lk_hlo each = lk__hlo_iota(l, LK_I64, (lk_hlo){.rank = 1, .size = {LK_COLOR_LEVELS}}, 0);
    lk_hlo is_level = lk__hlo_compare(l, lk__hlo_reshape(l, levels, 3, (int64_t[]){planes, pixels, 1}), "EQ", each);
    return lk__hlo_reduce(l, "add", lk__hlo_convert(l, is_level, LK_I64), 1u << 1);
}

/* How many pixels are below each level: the sums of the counts before it. */
static lk_hlo lower_colors_below(lk_lowering *l, lk_hlo counts)
{
    lk_hlo square = {.rank = 2, .size = {LK_COLOR_LEVELS, LK_COLOR_LEVELS}};
    lk_hlo is_before = lk__hlo_compare(l, lk__hlo_iota(l, LK_I64, square, 1), "LT", lk__hlo_iota(l, LK_I64, square, 0));
    lk_hlo each = lk__hlo_reshape(l, counts, 3, (int64_t[]){counts.size[0], 1, LK_COLOR_LEVELS});
    return lk__hlo_reduce(l, "add", lk__hlo_select(l, is_before, each, lk__hlo_integer(l, LK_I64, 0)), 1u << 2);
}

static lk_hlo lower_colors_equalize(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    int64_t planes = s->n * s->channels, pixels = s->size.height * s->size.width, all = planes * pixels;
    lk_hlo zero = lk__hlo_integer(l, LK_I64, 0), one = lk__hlo_integer(l, LK_I64, 1);
    lk_hlo top = lk__hlo_integer(l, LK_I64, LK_COLOR_LEVELS - 1);
    lk_hlo levels = lk__hlo_reshape(l, lower_colors_levels(l, images), 2, (int64_t[]){planes, pixels});
    lk_hlo counts = lower_colors_histogram(l, levels), below = lower_colors_below(l, counts);
    lk_hlo highest = lk__hlo_reduce_keep(l, "maximum", levels, 1u << 1);
    lk_hlo is_highest = lk__hlo_compare(l, lk__hlo_iota(l, LK_I64, counts, 1), "EQ", highest);
    lk_hlo last = lk__hlo_reduce_keep(l, "add", lk__hlo_select(l, is_highest, counts, zero), 1u << 1);
    lk_hlo step = lk__hlo_binary(l, "divide", lk__hlo_sub(l, lk__hlo_integer(l, LK_I64, pixels), last), top);
    lk_hlo divisor = lk__hlo_binary(l, "maximum", step, one);
    lk_hlo rounded = lk__hlo_add(l, below, lk__hlo_binary(l, "divide", step, lk__hlo_integer(l, LK_I64, 2)));
    lk_hlo equal = lk__hlo_binary(l, "minimum", lk__hlo_binary(l, "divide", rounded, divisor), top);
    /* each pixel takes the value of its level from its plane's row of the table */
    lk_hlo table = lk__hlo_reshape(l, lower_colors_of_levels(l, equal), 1, (int64_t[]){planes * LK_COLOR_LEVELS});
    lk_hlo row = lk__hlo_mul(l, lk__hlo_iota(l, LK_I64, levels, 0), lk__hlo_integer(l, LK_I64, LK_COLOR_LEVELS));
    lk_hlo places = lk__hlo_reshape(l, lk__hlo_add(l, row, levels), 2, (int64_t[]){all, 1});
    lk_hlo values = lk__hlo_windows(l, table, places, (int[]){0}, (int64_t[]){1}, (bool[]){true});
    lk_hlo changes = lk__hlo_compare(l, step, "GT", zero);
    changes = lk__hlo_reshape(l, changes, 4, (int64_t[]){s->n, s->channels, 1, 1});
    return lk__hlo_select(l, changes, lk__hlo_reshape(l, values, 4, images.size), images);
}

/* --- RandAugment -------------------------------------------------------------------------------------------------- */

/* A choice of RandAugment for each sample: the operation's number, i64 [N], and whether it is negative. */
typedef struct rand_choice {
    lk_hlo operation, negative;
    double magnitude;
} rand_choice;

static lk_hlo lower_colors_is(lk_lowering *l, const rand_choice *choice, lk_rand_operation operation)
{
    return lk__hlo_compare(l, choice->operation, "EQ", lk__hlo_integer(l, LK_I64, operation));
}

/* A number for each sample, f64 [N]: `forward` or `back` in samples that chose the operation, `other` in others. */
static lk_hlo lower_colors_with(lk_lowering *l, const rand_choice *choice, lk_hlo is_operation, double forward,
                                double back, lk_hlo other)
{
    lk_hlo own =
        lk__hlo_select(l, choice->negative, lk__hlo_number(l, LK_F64, back), lk__hlo_number(l, LK_F64, forward));
    return lk__hlo_select(l, is_operation, own, other);
}

static lk_hlo lower_colors_moved(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, const rand_choice *choice)
{
    lk_hlo zero = lk__hlo_fill(l, lk__hlo_number(l, LK_F64, 0), s->indices),
           one = lk__hlo_fill(l, lk__hlo_number(l, LK_F64, 1), s->indices);
    lk_hlo_map map = {one, zero, zero, one, zero, zero};
    for (lk_rand_operation o = LK_RAND_SHEAR_X; lk__rand_moves(o); o++) {
        lk_hlo is_chosen = lower_colors_is(l, choice, o);
        lk_pixel_map to = lk__rand_map(o, choice->magnitude, s->size),
                     back = lk__rand_map(o, -choice->magnitude, s->size);
        map.yy = lower_colors_with(l, choice, is_chosen, to.yy, back.yy, map.yy);
        map.yx = lower_colors_with(l, choice, is_chosen, to.yx, back.yx, map.yx);
        map.xy = lower_colors_with(l, choice, is_chosen, to.xy, back.xy, map.xy);
        map.xx = lower_colors_with(l, choice, is_chosen, to.xx, back.xx, map.xx);
        map.down = lower_colors_with(l, choice, is_chosen, to.down, back.down, map.down);
        map.right = lower_colors_with(l, choice, is_chosen, to.right, back.right, map.right);
    }
    return lk__hlo_map_pixels(l, s, images, &map);
}

static lk_hlo lower_colors_apply(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, const rand_choice *choice)
{
    double magnitude = choice->magnitude;
    lk_hlo factor = lk__hlo_select(l, choice->negative, lower_colors_f32(l, (double)lk__rand_factor(-magnitude)),
                                   lower_colors_f32(l, (double)lk__rand_factor(magnitude)));
    factor = lk__hlo_each_sample(l, factor);
    lk_hlo changed[LK_RAND_OPERATIONS], made = images, moved = lower_colors_moved(l, s, images, choice);
    changed[LK_RAND_IDENTITY] = images;
    for (lk_rand_operation o = LK_RAND_SHEAR_X; lk__rand_moves(o); o++)
        changed[o] = moved;
    changed[LK_RAND_BRIGHTNESS] = lower_colors_brightness(l, images, factor);
    changed[LK_RAND_COLOR] = lower_colors_saturation(l, s, images, factor);
    changed[LK_RAND_CONTRAST] = lower_colors_contrast(l, s, images, factor);
    changed[LK_RAND_SHARPNESS] = lower_colors_sharpness(l, s, images, factor);
    changed[LK_RAND_POSTERIZE] = lower_colors_posterize(l, images, lk__rand_bits(magnitude));
    changed[LK_RAND_SOLARIZE] = lower_colors_solarize(l, images, lk__rand_threshold(magnitude));
    changed[LK_RAND_AUTOCONTRAST] = lower_colors_autocontrast(l, images);
    changed[LK_RAND_EQUALIZE] = lower_colors_equalize(l, s, images);
    for (int o = 1; o < LK_RAND_OPERATIONS; o++)
        made = lk__hlo_select_rows(l, lower_colors_is(l, choice, (lk_rand_operation)o), changed[o], made);
    return made;
}

static lk_hlo lower_colors_rand(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    lk_hlo words[4];
    lk__hlo_draw(l, s, LK_AUGMENT_RAND, words);
    for (int i = 0; i < LK_RAND_CHOICES; i++) {
        rand_choice choice = {.operation =
                                  lk__hlo_random_below(l, words[2 * i], lk__hlo_integer(l, LK_I64, LK_RAND_OPERATIONS)),
                              .negative = lk__hlo_random_bit(l, words[2 * i + 1]),
                              .magnitude = (double)s->attrs->opts.rand_augment / LK_RAND_MAGNITUDES};
        images = lower_colors_apply(l, s, images, &choice);
    }
    return images;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

/* A factor of each sample in [1 - range, 1 + range), f32 [N, 1, 1, 1]. */
static lk_hlo lower_colors_factor(lk_lowering *l, lk_hlo word, double range)
{
    return lk__hlo_each_sample(l, lk__hlo_convert(l, lk__hlo_random_in(l, word, 1 - range, 1 + range), LK_F32));
}

static lk_hlo lower_colors_jitter(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    const lk_augment_opts *opts = &s->attrs->opts;
    lk_hlo words[4];
    lk__hlo_draw(l, s, LK_AUGMENT_COLORS, words);
    if (opts->brightness > 0)
        images = lower_colors_brightness(l, images, lower_colors_factor(l, words[0], opts->brightness));
    if (opts->contrast > 0)
        images = lower_colors_contrast(l, s, images, lower_colors_factor(l, words[1], opts->contrast));
    return images;
}

lk_hlo lk__hlo_change_colors(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    const lk_augment_opts *opts = &s->attrs->opts;
    if (opts->brightness > 0 || opts->contrast > 0)
        images = lower_colors_jitter(l, s, images);
    return opts->rand_augment > 0 ? lower_colors_rand(l, s, images) : images;
}
