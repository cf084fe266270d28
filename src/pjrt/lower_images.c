/* prepare_images, with the arithmetic of ops/augmentation.h: each sample's random choices, and then the pixels. */
#include "pjrt/lower_images.h"

#include <math.h>

/* --- choices ------------------------------------------------------------------------------------------------------ */

void lk__hlo_draw(lk_lowering *l, const lk_hlo_samples *s, lk_augment_purpose purpose, lk_hlo words[4])
{
    lk_random_key key = lk__augment_key(s->attrs->seed, purpose);
    lk_hlo block = lk__hlo_fill(l, lk__hlo_integer(l, LK_HLO_U32, 0), s->indices);
    lk__hlo_random_block(l, &key, block, s->indices, s->epoch, words);
}

void lk__hlo_draw_blocks(lk_lowering *l, const lk_hlo_samples *s, lk_augment_purpose purpose, int64_t first, int64_t n,
                         lk_hlo words[4])
{
    lk_random_key key = lk__augment_key(s->attrs->seed, purpose);
    lk_hlo like = {.type = LK_I64, .rank = 2, .size = {s->n, n}};
    lk_hlo block = lk__hlo_add(l, lk__hlo_iota(l, LK_HLO_U32, like, 1), lk__hlo_integer(l, LK_HLO_U32, first));
    lk_hlo sample = lk__hlo_broadcast(l, s->indices, like, (int[]){0});
    lk__hlo_random_block(l, &key, block, sample, s->epoch, words);
}

lk_hlo lk__hlo_random_below(lk_lowering *l, lk_hlo word, lk_hlo bound)
{
    lk_hlo product = lk__hlo_mul(l, lk__hlo_convert(l, word, LK_I64), bound);
    return lk__hlo_binary(l, "shift_right_logical", product, lk__hlo_integer(l, LK_I64, 32));
}

lk_hlo lk__hlo_random_in(lk_lowering *l, lk_hlo word, double low, double high)
{
    lk_hlo unit = lk__hlo_mul(l, lk__hlo_convert(l, word, LK_F64), lk__hlo_number(l, LK_F64, 0x1p-32));
    lk_hlo scaled = lk__hlo_rounded_mul(l, unit, lk__hlo_number(l, LK_F64, high - low));
    return lk__hlo_add(l, lk__hlo_number(l, LK_F64, low), scaled);
}

lk_hlo lk__hlo_random_bit(lk_lowering *l, lk_hlo word)
{
    return lk__hlo_compare(l, word, "GE", lk__hlo_integer(l, LK_HLO_U32, INT64_C(1) << 31));
}

lk_hlo lk__hlo_each_sample(lk_lowering *l, lk_hlo numbers)
{
    return lk__hlo_reshape(l, numbers, 4, (int64_t[]){numbers.size[0], 1, 1, 1});
}

/* --- pixels ------------------------------------------------------------------------------------------------------- */

/* moments: f32 [2, C] */
static lk_hlo lower_images_normalize(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_hlo moments)
{
    int64_t channels[] = {s->channels, 1, 1};
    lk_hlo mean = lk__hlo_reshape(l, lk__hlo_slice_axis(l, moments, 0, 0, 1), 3, channels);
    lk_hlo divisor = lk__hlo_reshape(l, lk__hlo_slice_axis(l, moments, 0, 1, 2), 3, channels);
    return lk__hlo_div(l, lk__hlo_sub(l, images, mean), divisor);
}

/* Returns whether begin <= place < begin + extent for each place along an axis of the images: [N, 1, H, 1] or
 * [N, 1, 1, W]. begin and extent: i64 [N]. */
static lk_hlo lower_images_is_between(lk_lowering *l, const lk_hlo_samples *s, lk_hlo begin, lk_hlo extent, int axis)
{
    lk_hlo like = {.rank = 4, .size = {s->n, 1, axis == 2 ? s->size.height : 1, axis == 3 ? s->size.width : 1}};
    lk_hlo place = lk__hlo_sub(l, lk__hlo_iota(l, LK_I64, like, axis), lk__hlo_each_sample(l, begin));
    lk_hlo from = lk__hlo_compare(l, place, "GE", lk__hlo_integer(l, LK_I64, 0));
    return lk__hlo_and(l, from, lk__hlo_compare(l, place, "LT", lk__hlo_each_sample(l, extent)));
}

/* Sets a rectangle of each image to 0. */
static lk_hlo lower_images_erase(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, lk_hlo top, lk_hlo left,
                                 lk_hlo height, lk_hlo width)
{
    lk_hlo inside =
        lk__hlo_and(l, lower_images_is_between(l, s, top, height, 2), lower_images_is_between(l, s, left, width, 3));
    return lk__hlo_select(l, inside, lk__hlo_number(l, LK_F32, 0), images);
}

static lk_hlo lower_images_cut_out(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    lk_hlo words[4], half = lk__hlo_integer(l, LK_I64, s->attrs->opts.cutout / 2);
    lk_hlo side = lk__hlo_fill(l, lk__hlo_integer(l, LK_I64, s->attrs->opts.cutout), s->indices);
    lk__hlo_draw(l, s, LK_AUGMENT_CUTOUT, words);
    lk_hlo y = lk__hlo_random_below(l, words[0], lk__hlo_integer(l, LK_I64, s->size.height));
    lk_hlo x = lk__hlo_random_below(l, words[1], lk__hlo_integer(l, LK_I64, s->size.width));
    return lower_images_erase(l, s, images, lk__hlo_sub(l, y, half), lk__hlo_sub(l, x, half), side, side);
}

/* Rounds the root of a square of a side, f64, to pixels, i64. */
static lk_hlo lower_images_side(lk_lowering *l, lk_hlo square)
{
    lk_hlo root = lk__hlo_add(l, lk__hlo_unary(l, "sqrt", square), lk__hlo_number(l, LK_F64, 0.5));
    return lk__hlo_convert(l, root, LK_I64);
}

/* Returns the sum over axis 1 of the numbers [N, n] where `picked` is true: [N]. */
static lk_hlo lower_images_pick(lk_lowering *l, lk_hlo picked, lk_hlo numbers)
{
    return lk__hlo_reduce(l, "add", lk__hlo_select(l, picked, numbers, lk__hlo_integer(l, LK_I64, 0)), 1u << 1);
}

/* Random erasing: all tries at once, of which the first that fits counts. */
static lk_hlo lower_images_erase_randomly(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images)
{
    lk_hlo first[4], words[4], one = lk__hlo_integer(l, LK_I64, 1);
    lk_hlo rows = lk__hlo_integer(l, LK_I64, s->size.height), columns = lk__hlo_integer(l, LK_I64, s->size.width);
    lk__hlo_draw(l, s, LK_AUGMENT_ERASE, first);
    lk__hlo_draw_blocks(l, s, LK_AUGMENT_ERASE, 1, LK_ERASE_TRIES, words);
    lk_hlo area = lk__hlo_mul(l, lk__hlo_random_in(l, words[0], LK_ERASE_LEAST_AREA, LK_ERASE_MOST_AREA),
                              lk__hlo_number(l, LK_F64, (double)(s->size.height * s->size.width)));
    lk_hlo ratio = lk__hlo_random_in(l, words[1], LK_ERASE_LEAST_RATIO, LK_ERASE_MOST_RATIO);
    lk_hlo height = lower_images_side(l, lk__hlo_mul(l, area, ratio)),
           width = lower_images_side(l, lk__hlo_div(l, area, ratio));
    lk_hlo fits = lk__hlo_and(l, lk__hlo_compare(l, height, "GE", one), lk__hlo_compare(l, width, "GE", one));
    fits = lk__hlo_and(l, fits, lk__hlo_compare(l, height, "LT", rows));
    fits = lk__hlo_and(l, fits, lk__hlo_compare(l, width, "LT", columns));
    lk_hlo tries = lk__hlo_iota(l, LK_I64, fits, 1);
    lk_hlo fitting = lk__hlo_select(l, fits, tries, lk__hlo_integer(l, LK_I64, LK_ERASE_TRIES));
    lk_hlo picked = lk__hlo_compare(l, tries, "EQ", lk__hlo_reduce_keep(l, "minimum", fitting, 1u << 1));
    lk_hlo top = lk__hlo_random_below(l, words[2], lk__hlo_add(l, lk__hlo_sub(l, rows, height), one));
    lk_hlo left = lk__hlo_random_below(l, words[3], lk__hlo_add(l, lk__hlo_sub(l, columns, width), one));
    lk_hlo erases =
        lk__hlo_compare(l, lk__hlo_random_in(l, first[0], 0, 1), "LT", lk__hlo_number(l, LK_F64, s->attrs->opts.erase));
    lk_hlo extent = lk__hlo_select(l, erases, lower_images_pick(l, picked, height), lk__hlo_integer(l, LK_I64, 0));
    return lower_images_erase(l, s, images, lower_images_pick(l, picked, top), lower_images_pick(l, picked, left),
                              extent, lower_images_pick(l, picked, width));
}

/* --- mixup -------------------------------------------------------------------------------------------------------- */

/* Draws the samples to mix with, i64 [N], and the images' own shares, f32 [N], for a set of `count`. */
static lk_hlo lower_images_others(lk_lowering *l, const lk_hlo_samples *s, int64_t count, lk_hlo *share)
{
    lk_augment_chances chances;
    int64_t bounds[LK_MIXUP_PARTS];
    lk_hlo words[4];
    lk__augment_chances_init(&s->attrs->opts, s->attrs->seed, &chances);
    for (int i = 0; i < LK_MIXUP_PARTS; i++)
        bounds[i] = chances.mixing[i];
    lk__hlo_draw(l, s, LK_AUGMENT_MIXUP, words);
    lk_hlo word = lk__hlo_reshape(l, lk__hlo_convert(l, words[1], LK_I64), 2, (int64_t[]){s->n, 1});
    lk_hlo reached = lk__hlo_compare(l, word, "GE", lk__hlo_vector(l, LK_I64, bounds, LK_MIXUP_PARTS));
    lk_hlo parts = lk__hlo_reduce(l, "add", lk__hlo_convert(l, reached, LK_I64), 1u << 1);
    *share = lk__hlo_mul(l, lk__hlo_convert(l, parts, LK_F32), lk__hlo_number(l, LK_F32, 1.0 / LK_MIXUP_PARTS));
    if (count < 2)
        return s->indices;
    lk_hlo other = lk__hlo_random_below(l, words[0], lk__hlo_integer(l, LK_I64, count - 1));
    lk_hlo from_here = lk__hlo_compare(l, other, "GE", s->indices);
    return lk__hlo_add(l, other, lk__hlo_convert(l, from_here, LK_I64));
}

/* share a + (1 - share) b */
static lk_hlo lower_images_mix(lk_lowering *l, lk_hlo a, lk_hlo b, lk_hlo share)
{
    share = lk__hlo_each_sample(l, share);
    lk_hlo rest = lk__hlo_sub(l, lk__hlo_number(l, LK_F32, 1), share);
    return lk__hlo_add(l, lk__hlo_rounded_mul(l, share, a), lk__hlo_rounded_mul(l, rest, b));
}

/* --- images ------------------------------------------------------------------------------------------------------- */

static lk_hlo lower_images_make(lk_lowering *l, const lk_hlo_samples *s, const lk_call *call)
{
    const lk_augment_opts *opts = &s->attrs->opts;
    lk_hlo set = lk__hlo_read(l, call->in[0]);
    if (set.size[0] == 1) /* else XLA knows what is gathered, and multiplies by 1 / 255 */
        set = lk__hlo_pad(l, set, lk__hlo_integer(l, LK_U8, 0), (int64_t[4]){0}, (int64_t[4]){1}, (int64_t[4]){0});
    lk_hlo bytes = lk__hlo_gather(l, set, s->indices);
    lk_hlo images = lk__hlo_div(l, lk__hlo_convert(l, bytes, LK_F32), lk__hlo_number(l, LK_F32, 255));
    images = lk__hlo_change_colors(l, s, lk__hlo_move_pixels(l, s, images));
    if (call->n_in > 3 && call->in[3])
        images = lower_images_normalize(l, s, images, lk__hlo_read(l, call->in[3]));
    if (opts->cutout)
        images = lower_images_cut_out(l, s, images);
    return opts->erase > 0 ? lower_images_erase_randomly(l, s, images) : images;
}

/* A sample whose index is out of range becomes NaN. The images to mix with are made in the same pass. */
void lk__lower_prepare_images(lk_lowering *l, const lk_call *call)
{
    lk_shape shape = call->out[0]->shape;
    int64_t n = shape.dim[0], count = call->in[0]->shape.dim[0];
    if (n == 0)
        return;
    lk_hlo_samples s = {.attrs = LK_ATTRS(call, lk_prepare_images_attrs),
                        .indices = lk__hlo_read(l, call->in[1]),
                        .epoch = lk__hlo_read(l, call->in[2]),
                        .n = n,
                        .channels = shape.dim[1],
                        .size = {shape.dim[2], shape.dim[3]}};
    lk_hlo images, share, is_valid = lk__hlo_is_inside(l, s.indices, count);
    if (s.attrs->opts.mixup > 0) {
        lk_hlo both[] = {s.indices, lower_images_others(l, &s, count, &share)};
        s.indices = lk__hlo_concat(l, both, 2, 0);
        s.n = 2 * n;
        images = lower_images_make(l, &s, call);
        images = lower_images_mix(l, lk__hlo_slice_axis(l, images, 0, 0, n), lk__hlo_slice_axis(l, images, 0, n, 2 * n),
                                  share);
    } else {
        images = lower_images_make(l, &s, call);
    }
    lk__hlo_write(l, call->out[0], lk__hlo_select_rows(l, is_valid, images, lk__hlo_number(l, LK_F32, NAN)));
}
