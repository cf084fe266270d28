/* Changes of prepare_images that move pixels: ops/pixels.h on all images of a call. */
#include "pjrt/lower_images.h"

#include <math.h>

/* Picks from each image [N, C, ., .] the window of `height` by `width` pixels that begins at (y, x), i64 [N]. */
static lk_hlo lower_moves_windows(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_hlo y, lk_hlo x,
                                  int64_t height, int64_t width)
{
    int64_t column[] = {s->n, 1}, window[] = {1, s->channels, height, width};
    lk_hlo sample = lk__hlo_iota(l, LK_I64, (lk_hlo){.rank = 1, .size = {s->n}}, 0);
    lk_hlo columns[] = {lk__hlo_reshape(l, sample, 2, column), lk__hlo_reshape(l, y, 2, column),
                        lk__hlo_reshape(l, x, 2, column)};
    lk_hlo begins = lk__hlo_concat(l, columns, 3, 1);
    return lk__hlo_windows(l, images, begins, (int[]){0, 2, 3}, window, (bool[]){true, false, false, false});
}

/* Repeats the first and the last pixels along an axis `reach` times. */
static lk_hlo lower_moves_repeat_edges(lk_lowering *l, lk_hlo images, int axis, int64_t reach)
{
    int64_t size = images.size[axis];
    lk_hlo like = images;
    like.size[axis] = reach;
    lk_hlo first = lk__hlo_slice_axis(l, images, axis, 0, 1),
           last = lk__hlo_slice_axis(l, images, axis, size - 1, size);
    lk_hlo parts[] = {lk__hlo_broadcast(l, first, like, (int[]){0, 1, 2, 3}), images,
                      lk__hlo_broadcast(l, last, like, (int[]){0, 1, 2, 3})};
    return lk__hlo_concat(l, parts, 3, axis);
}

/* a + share (b - a), with share [N] */
static lk_hlo lower_moves_blend(lk_lowering *l, lk_hlo a, lk_hlo b, lk_hlo share)
{
    return lk__hlo_add(l, a, lk__hlo_rounded_mul(l, lk__hlo_each_sample(l, share), lk__hlo_sub(l, b, a)));
}

/* Splits a place, f64, into its whole part, i64, and the rest, f32. */
static void lower_moves_split(lk_lowering *l, lk_hlo place, lk_hlo *whole, lk_hlo *rest)
{
    lk_hlo below = lk__hlo_unary(l, "floor", place);
    *whole = lk__hlo_convert(l, below, LK_I64);
    *rest = lk__hlo_convert(l, lk__hlo_sub(l, place, below), LK_F32);
}

/* --- shift, flips and crop ---------------------------------------------------------------------------------------- */

/* Uniform in [-share, share) times the size, f64 [N]. */
static lk_hlo lower_moves_random_shift(lk_lowering *l, lk_hlo word, double share, int64_t size)
{
    lk_hlo unit = lk__hlo_mul(l, lk__hlo_convert(l, word, LK_F64), lk__hlo_number(l, LK_F64, 0x1p-31));
    lk_hlo around = lk__hlo_sub(l, unit, lk__hlo_number(l, LK_F64, 1));
    lk_hlo shift = lk__hlo_mul(l, around, lk__hlo_number(l, LK_F64, share));
    return lk__hlo_mul(l, shift, lk__hlo_number(l, LK_F64, (double)size));
}

/* The pixel at (y + down, x + right), bilinear; outside count the nearest pixels. */
static lk_hlo lower_moves_shift(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    const lk_augment_opts *opts = &s->attrs->opts;
    const double share[] = {opts->height_shift, opts->width_shift};
    const int64_t size[] = {s->size.height, s->size.width};
    lk_hlo words[4], begin[2], rest[2];
    lk__hlo_draw(l, s, LK_AUGMENT_SHIFT, words);
    for (int i = 0; i < 2; i++) {
        int64_t reach = (int64_t)ceil(share[i] * (double)size[i]) + 1;
        lower_moves_split(l, lower_moves_random_shift(l, words[i], share[i], size[i]), &begin[i], &rest[i]);
        begin[i] = lk__hlo_add(l, begin[i], lk__hlo_integer(l, LK_I64, reach));
        images = lower_moves_repeat_edges(l, images, 2 + i, reach);
    }
    images = lower_moves_windows(l, s, images, begin[0], begin[1], size[0] + 1, size[1] + 1);
    for (int i = 0; i < 2; i++) {
        lk_hlo near = lk__hlo_slice_axis(l, images, 2 + i, 0, size[i]);
        images = lower_moves_blend(l, near, lk__hlo_slice_axis(l, images, 2 + i, 1, size[i] + 1), rest[i]);
    }
    return images;
}

static lk_hlo lower_moves_flip(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_augment_purpose purpose,
                               int axis)
{
    lk_hlo words[4];
    lk__hlo_draw(l, s, purpose, words);
    return lk__hlo_select_rows(l, lk__hlo_random_bit(l, words[0]), lk__hlo_reverse(l, images, axis), images);
}

static lk_hlo lower_moves_crop(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    int64_t padding = s->attrs->opts.crop_padding, around[] = {0, 0, padding, padding};
    lk_hlo words[4], places = lk__hlo_integer(l, LK_I64, 2 * padding + 1);
    lk__hlo_draw(l, s, LK_AUGMENT_CROP, words);
    lk_hlo y = lk__hlo_random_below(l, words[0], places), x = lk__hlo_random_below(l, words[1], places);
    images = lk__hlo_pad(l, images, lk__hlo_number(l, LK_F32, 0), around, around, (int64_t[4]){0});
    return lower_moves_windows(l, s, images, y, x, s->size.height, s->size.width);
}

/* --- maps --------------------------------------------------------------------------------------------------------- */

/* ((a y + b x) + c) + middle for each pixel of each sample: f64 [N, H, W]. */
static lk_hlo lower_moves_place(lk_lowering *l, lk_hlo a, lk_hlo y, lk_hlo b, lk_hlo x, lk_hlo c, double middle)
{
    int64_t scalars[] = {a.rank ? a.size[0] : 1, 1, 1};
    lk_hlo sum = lk__hlo_add(l, lk__hlo_rounded_mul(l, lk__hlo_reshape(l, a, 3, scalars), y),
                             lk__hlo_rounded_mul(l, lk__hlo_reshape(l, b, 3, scalars), x));
    sum = lk__hlo_add(l, sum, lk__hlo_reshape(l, c, 3, (int64_t[]){c.rank ? c.size[0] : 1, 1, 1}));
    return lk__hlo_add(l, sum, lk__hlo_number(l, LK_F64, middle));
}

/* The numbers of rows or columns, counted from the middle: f64 [1, H, 1] or [1, 1, W]. */
static lk_hlo lower_moves_axis(lk_lowering *l, int axis, int64_t size, double middle)
{
    lk_hlo like = {.rank = 3, .size = {1, axis == 1 ? size : 1, axis == 2 ? size : 1}};
    return lk__hlo_sub(l, lk__hlo_iota(l, LK_F64, like, axis), lk__hlo_number(l, LK_F64, middle));
}

/* The pixels around each place, [NHW, C, 2, 2]. Two pixels of 0 on each side are what places far outside find, since
 * windows are moved inside. */
static lk_hlo lower_moves_around(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_hlo row, lk_hlo column)
{
    enum { MARGIN = 2 };
    int64_t around[] = {0, 0, MARGIN, MARGIN}, count = lk__hlo_count(&row), list[] = {count, 1};
    int64_t window[] = {1, s->channels, 2, 2};
    lk_hlo margin = lk__hlo_integer(l, LK_I64, MARGIN), sample = lk__hlo_iota(l, LK_I64, row, 0);
    lk_hlo columns[] = {lk__hlo_reshape(l, sample, 2, list), lk__hlo_reshape(l, lk__hlo_add(l, row, margin), 2, list),
                        lk__hlo_reshape(l, lk__hlo_add(l, column, margin), 2, list)};
    images = lk__hlo_pad(l, images, lk__hlo_number(l, LK_F32, 0), around, around, (int64_t[4]){0});
    return lk__hlo_windows(l, images, lk__hlo_concat(l, columns, 3, 1), (int[]){0, 2, 3}, window,
                           (bool[]){true, false, false, false});
}

lk_hlo lk__hlo_map_pixels(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, const lk_hlo_map *map)
{
    int64_t height = s->size.height, width = s->size.width, count = s->n * height * width;
    double middle_y = (double)(height - 1) / 2, middle_x = (double)(width - 1) / 2;
    lk_hlo y = lower_moves_axis(l, 1, height, middle_y), x = lower_moves_axis(l, 2, width, middle_x);
    lk_hlo all = {.type = LK_I64, .rank = 3, .size = {s->n, height, width}};
    lk_hlo row, column, down, right;
    lower_moves_split(l, lower_moves_place(l, map->yy, y, map->yx, x, map->down, middle_y), &row, &down);
    lower_moves_split(l, lower_moves_place(l, map->xy, y, map->xx, x, map->right, middle_x), &column, &right);
    lk_hlo zero = lk__hlo_fill(l, lk__hlo_integer(l, LK_I64, 0), all);
    lk_hlo around = lower_moves_around(l, s, images, lk__hlo_add(l, row, zero), lk__hlo_add(l, column, zero));
    right = lk__hlo_reshape(l, right, 1, &count);
    down = lk__hlo_reshape(l, down, 1, &count);
    lk_hlo rows =
        lower_moves_blend(l, lk__hlo_slice_axis(l, around, 3, 0, 1), lk__hlo_slice_axis(l, around, 3, 1, 2), right);
    lk_hlo mapped =
        lower_moves_blend(l, lk__hlo_slice_axis(l, rows, 2, 0, 1), lk__hlo_slice_axis(l, rows, 2, 1, 2), down);
    mapped = lk__hlo_reshape(l, mapped, 3, (int64_t[]){s->n, height * width, s->channels});
    mapped = lk__hlo_transpose(l, mapped, (int[]){0, 2, 1});
    return lk__hlo_reshape(l, mapped, 4, (int64_t[]){s->n, s->channels, height, width});
}

/* lk__pixel_series */
static lk_hlo lower_moves_series(lk_lowering *l, lk_hlo x, int first)
{
    lk_hlo one = lk__hlo_number(l, LK_F64, 1), square = lk__hlo_mul(l, x, x), sum = lk__hlo_fill(l, one, x);
    for (int k = first + LK_PIXEL_SERIES_END; k >= first; k -= 2) {
        lk_hlo part = lk__hlo_div(l, square, lk__hlo_number(l, LK_F64, (double)(k * (k + 1))));
        sum = lk__hlo_sub(l, one, lk__hlo_rounded_mul(l, part, sum));
    }
    return sum;
}

static lk_hlo lower_moves_rotate(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    lk_hlo words[4], none = lk__hlo_number(l, LK_F64, 0);
    lk__hlo_draw(l, s, LK_AUGMENT_ROTATION, words);
    lk_hlo degrees = lk__hlo_random_in(l, words[0], -s->attrs->opts.rotation, s->attrs->opts.rotation);
    lk_hlo angle = lk__hlo_rounded_mul(l, degrees, lk__hlo_number(l, LK_F64, LK_RADIANS_IN_DEGREE));
    lk_hlo cosine = lower_moves_series(l, angle, 1);
    lk_hlo sine = lk__hlo_rounded_mul(l, angle, lower_moves_series(l, angle, 2));
    lk_hlo_map map = {cosine, sine, lk__hlo_unary(l, "negate", sine), cosine, none, none};
    return lk__hlo_map_pixels(l, s, images, &map);
}

lk_hlo lk__hlo_move_pixels(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    const lk_augment_opts *opts = &s->attrs->opts;
    if (opts->height_shift > 0 || opts->width_shift > 0)
        images = lower_moves_shift(l, s, images);
    if (opts->horizontal_flip)
        images = lower_moves_flip(l, s, images, LK_AUGMENT_FLIP, 3);
    if (opts->vertical_flip)
        images = lower_moves_flip(l, s, images, LK_AUGMENT_VERTICAL_FLIP, 2);
    if (opts->rotation > 0)
        images = lower_moves_rotate(l, s, images);
    return opts->crop_padding ? lower_moves_crop(l, s, images) : images;
}
