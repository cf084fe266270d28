/* prepare_images, with the arithmetic of ops/augmentation.h: each sample's random choices, and then the pixels. */
#include "ops/augmentation.h"
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <math.h>

/* The samples of a call: images [N, C, H, W], and indices and epoch, which key their random numbers. */
typedef struct samples {
    const lk_prepare_images_attrs *attrs;
    lk_hlo indices, epoch; /* i64 [N] and [] */
    int64_t n, channels, height, width;
} samples;

/* --- choices ------------------------------------------------------------------------------------------------------ */

/* Draws four words a sample for a purpose: ui32 [N] each. */
static void lower_images_draw(lk_lowering *l, const samples *s, const char *purpose, lk_hlo words[4])
{
    lk_random_key key = {.seed = s->attrs->seed, .purpose = lk_random_purpose(purpose)};
    lk_hlo block = lk__hlo_fill(l, lk__hlo_integer(l, LK_HLO_U32, 0), s->indices);
    lk__hlo_random_block(l, &key, block, s->indices, s->epoch, words);
}

/* Uniform in [-share, share) times the size, f64 [N]. */
static lk_hlo lower_images_random_shift(lk_lowering *l, lk_hlo word, double share, int64_t size)
{
    lk_hlo unit = lk__hlo_mul(l, lk__hlo_convert(l, word, LK_F64), lk__hlo_number(l, LK_F64, 0x1p-31));
    lk_hlo around = lk__hlo_sub(l, unit, lk__hlo_number(l, LK_F64, 1));
    lk_hlo shift = lk__hlo_mul(l, around, lk__hlo_number(l, LK_F64, share));
    return lk__hlo_mul(l, shift, lk__hlo_number(l, LK_F64, (double)size));
}

/* Uniform in [0, bound), i64 [N]. */
static lk_hlo lower_images_random_below(lk_lowering *l, lk_hlo word, int64_t bound)
{
    lk_hlo product = lk__hlo_mul(l, lk__hlo_convert(l, word, LK_I64), lk__hlo_integer(l, LK_I64, bound));
    return lk__hlo_binary(l, "shift_right_logical", product, lk__hlo_integer(l, LK_I64, 32));
}

/* --- pixels ------------------------------------------------------------------------------------------------------- */

/* Picks from each image [N, C, ., .] the window of `height` by `width` pixels that begins at (y, x), i64 [N]. */
static lk_hlo lower_images_windows(lk_lowering *l, const samples *s, lk_hlo images, lk_hlo y, lk_hlo x, int64_t height,
                                   int64_t width)
{
    int64_t column[] = {s->n, 1}, window[] = {1, s->channels, height, width};
    lk_hlo sample = lk__hlo_iota(l, LK_I64, (lk_hlo){.rank = 1, .size = {s->n}}, 0);
    lk_hlo columns[] = {lk__hlo_reshape(l, sample, 2, column), lk__hlo_reshape(l, y, 2, column),
                        lk__hlo_reshape(l, x, 2, column)};
    lk_hlo begins = lk__hlo_concat(l, columns, 3, 1);
    return lk__hlo_windows(l, images, begins, (int[]){0, 2, 3}, window, (bool[]){true, false, false, false});
}

/* Repeats the first and the last pixels along an axis `reach` times. */
static lk_hlo lower_images_repeat_edges(lk_lowering *l, lk_hlo images, int axis, int64_t reach)
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
static lk_hlo lower_images_blend(lk_lowering *l, lk_hlo a, lk_hlo b, lk_hlo share)
{
    lk_hlo each = lk__hlo_reshape(l, share, 4, (int64_t[]){share.size[0], 1, 1, 1});
    return lk__hlo_add(l, a, lk__hlo_rounded_mul(l, each, lk__hlo_sub(l, b, a)));
}

/* The pixel at (y + down, x + right), bilinear; outside count the nearest pixels. */
static lk_hlo lower_images_shift(lk_lowering *l, const samples *s, lk_hlo images)
{
    const lk_augment_opts *opts = &s->attrs->opts;
    const double share[] = {opts->height_shift, opts->width_shift};
    const int64_t size[] = {s->height, s->width};
    lk_hlo words[4], begin[2], rest[2];
    lower_images_draw(l, s, LK_AUGMENT_SHIFT, words);
    for (int i = 0; i < 2; i++) {
        int64_t reach = (int64_t)ceil(share[i] * (double)size[i]) + 1;
        lk_hlo shift = lower_images_random_shift(l, words[i], share[i], size[i]);
        lk_hlo whole = lk__hlo_unary(l, "floor", shift);
        rest[i] = lk__hlo_convert(l, lk__hlo_sub(l, shift, whole), LK_F32);
        begin[i] = lk__hlo_add(l, lk__hlo_convert(l, whole, LK_I64), lk__hlo_integer(l, LK_I64, reach));
        images = lower_images_repeat_edges(l, images, 2 + i, reach);
    }
    images = lower_images_windows(l, s, images, begin[0], begin[1], s->height + 1, s->width + 1);
    for (int i = 0; i < 2; i++) {
        lk_hlo near = lk__hlo_slice_axis(l, images, 2 + i, 0, size[i]);
        images = lower_images_blend(l, near, lk__hlo_slice_axis(l, images, 2 + i, 1, size[i] + 1), rest[i]);
    }
    return images;
}

static lk_hlo lower_images_flip(lk_lowering *l, const samples *s, lk_hlo images)
{
    lk_hlo words[4];
    lower_images_draw(l, s, LK_AUGMENT_FLIP, words);
    lk_hlo is_flipped = lk__hlo_compare(l, words[0], "GE", lk__hlo_integer(l, LK_HLO_U32, INT64_C(1) << 31));
    return lk__hlo_select_rows(l, is_flipped, lk__hlo_reverse(l, images, 3), images);
}

static lk_hlo lower_images_crop(lk_lowering *l, const samples *s, lk_hlo images)
{
    int64_t padding = s->attrs->opts.crop_padding, around[] = {0, 0, padding, padding};
    lk_hlo words[4];
    lower_images_draw(l, s, LK_AUGMENT_CROP, words);
    lk_hlo y = lower_images_random_below(l, words[0], 2 * padding + 1);
    lk_hlo x = lower_images_random_below(l, words[1], 2 * padding + 1);
    images = lk__hlo_pad(l, images, lk__hlo_number(l, LK_F32, 0), around, around, (int64_t[4]){0});
    return lower_images_windows(l, s, images, y, x, s->height, s->width);
}

/* moments: f32 [2, C] */
static lk_hlo lower_images_normalize(lk_lowering *l, const samples *s, lk_hlo images, lk_hlo moments)
{
    int64_t channels[] = {s->channels, 1, 1};
    lk_hlo mean = lk__hlo_reshape(l, lk__hlo_slice_axis(l, moments, 0, 0, 1), 3, channels);
    lk_hlo divisor = lk__hlo_reshape(l, lk__hlo_slice_axis(l, moments, 0, 1, 2), 3, channels);
    return lk__hlo_div(l, lk__hlo_sub(l, images, mean), divisor);
}

/* True for each pixel along an axis that is in the hole of the sample: [N, 1, size, 1] or [N, 1, 1, size]. */
static lk_hlo lower_images_is_cut(lk_lowering *l, const samples *s, lk_hlo center, int axis)
{
    int64_t side = s->attrs->opts.cutout;
    lk_hlo like = {.rank = 4, .size = {s->n, 1, axis == 2 ? s->height : 1, axis == 3 ? s->width : 1}};
    lk_hlo begin = lk__hlo_sub(l, center, lk__hlo_integer(l, LK_I64, side / 2));
    begin = lk__hlo_reshape(l, begin, 4, (int64_t[]){s->n, 1, 1, 1});
    return lk__hlo_is_inside(l, lk__hlo_sub(l, lk__hlo_iota(l, LK_I64, like, axis), begin), side);
}

static lk_hlo lower_images_cut_out(lk_lowering *l, const samples *s, lk_hlo images)
{
    lk_hlo words[4];
    lower_images_draw(l, s, LK_AUGMENT_CUTOUT, words);
    lk_hlo rows = lower_images_is_cut(l, s, lower_images_random_below(l, words[0], s->height), 2);
    lk_hlo columns = lower_images_is_cut(l, s, lower_images_random_below(l, words[1], s->width), 3);
    return lk__hlo_select(l, lk__hlo_and(l, rows, columns), lk__hlo_number(l, LK_F32, 0), images);
}

/* A sample whose index is out of range becomes NaN. */
void lk__lower_prepare_images(lk_lowering *l, const lk_call *call)
{
    lk_shape shape = call->out[0]->shape;
    samples s = {.attrs = LK_ATTRS(call, lk_prepare_images_attrs),
                 .indices = lk__hlo_read(l, call->in[1]),
                 .epoch = lk__hlo_read(l, call->in[2]),
                 .n = shape.dim[0],
                 .channels = shape.dim[1],
                 .height = shape.dim[2],
                 .width = shape.dim[3]};
    const lk_augment_opts *opts = &s.attrs->opts;
    lk_hlo bytes = lk__hlo_gather(l, lk__hlo_read(l, call->in[0]), s.indices);
    lk_hlo images = lk__hlo_div(l, lk__hlo_convert(l, bytes, LK_F32), lk__hlo_number(l, LK_F32, 255));
    if (opts->height_shift > 0 || opts->width_shift > 0)
        images = lower_images_shift(l, &s, images);
    if (opts->horizontal_flip)
        images = lower_images_flip(l, &s, images);
    if (opts->crop_padding)
        images = lower_images_crop(l, &s, images);
    if (call->n_in > 3 && call->in[3])
        images = lower_images_normalize(l, &s, images, lk__hlo_read(l, call->in[3]));
    if (opts->cutout)
        images = lower_images_cut_out(l, &s, images);
    lk_hlo is_valid = lk__hlo_is_inside(l, s.indices, call->in[0]->shape.dim[0]);
    lk__hlo_write(l, call->out[0], lk__hlo_select_rows(l, is_valid, images, lk__hlo_number(l, LK_F32, NAN)));
}
