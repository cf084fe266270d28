/* squared_norms and update_scales, in the orders of sums that ops/update.h gives.
 *
 * Segments are values of a tensor, which a module does not know. So all blocks of all segments are the rows of one
 * table: there are at most as many as blocks fit into x, and one more for each segment. */
#include "ops/ops.h"
#include "ops/update.h"
#include "pjrt/lower_ops.h"

/* The blocks of n segments; rows that belong to none are empty. */
typedef struct norm_blocks {
    int64_t segments, rows;
    lk_hlo counts, firsts; /* [segments] i64: a segment's number of blocks, and its first row */
    lk_hlo index, limit;   /* [rows] i64: a block's number in its segment, and that segment's number of blocks */
    lk_hlo begin, size;    /* [rows] i64: its elements */
} norm_blocks;

/* [n] of which element i is the sum of x[0 … i). */
static lk_hlo lower_sums_before(lk_lowering *l, lk_hlo x)
{
    int64_t n = x.size[0];
    lk_hlo like = {.rank = 2, .size = {n, n}};
    lk_hlo is_before = lk__hlo_compare(l, lk__hlo_iota(l, LK_I64, like, 1), "LT", lk__hlo_iota(l, LK_I64, like, 0));
    return lk__hlo_reduce(l, "add", lk__hlo_select(l, is_before, x, lk__hlo_integer(l, LK_I64, 0)), 1u << 1);
}

static norm_blocks lower_norm_blocks(lk_lowering *l, lk_hlo offsets, int64_t count)
{
    norm_blocks b = {.segments = offsets.size[0] - 1};
    b.rows = count / LK_NORM_BLOCK + b.segments;
    lk_hlo one = lk__hlo_integer(l, LK_I64, 1), block = lk__hlo_integer(l, LK_I64, LK_NORM_BLOCK);
    lk_hlo begins = lk__hlo_slice_axis(l, offsets, 0, 0, b.segments);
    lk_hlo ends = lk__hlo_slice_axis(l, offsets, 0, 1, b.segments + 1);
    lk_hlo sizes = lk__hlo_sub(l, ends, begins);
    b.counts = lk__hlo_div(l, lk__hlo_add(l, sizes, lk__hlo_integer(l, LK_I64, LK_NORM_BLOCK - 1)), block);
    b.firsts = lower_sums_before(l, b.counts);
    lk_hlo row = lk__hlo_iota(l, LK_I64, (lk_hlo){.rank = 1, .size = {b.rows}}, 0);
    lk_hlo table = lk__hlo_iota(l, LK_I64, (lk_hlo){.rank = 2, .size = {b.rows, b.segments}}, 0);
    /* A row's segment is the last one that begins at it or before: empty segments begin where the next one does. */
    lk_hlo begun = lk__hlo_convert(l, lk__hlo_compare(l, table, "GE", b.firsts), LK_I64);
    lk_hlo segment = lk__hlo_sub(l, lk__hlo_reduce(l, "add", begun, 1u << 1), one);
    b.index = lk__hlo_sub(l, row, lk__hlo_gather(l, b.firsts, segment));
    b.limit = lk__hlo_gather(l, b.counts, segment);
    lk_hlo passed = lk__hlo_mul(l, b.index, block);
    b.begin = lk__hlo_add(l, lk__hlo_gather(l, begins, segment), passed);
    b.size = lk__hlo_sub(l, lk__hlo_gather(l, sizes, segment), passed);
    return b;
}

/* The squares of all blocks, f64 [LK_NORM_BLOCK / LK_NORM_LANES, rows, LK_NORM_LANES], with zeroes behind a block's
 * end, which change no sum of squares. */
static lk_hlo lower_norm_squares(lk_lowering *l, lk_hlo x, const norm_blocks *b)
{
    int64_t table[] = {b->rows, LK_NORM_BLOCK};
    lk_hlo zero = lk__hlo_number(l, x.type, 0);
    lk_hlo padded = lk__hlo_pad(l, x, zero, (int64_t[]){0}, (int64_t[]){LK_NORM_BLOCK}, (int64_t[]){0});
    lk_hlo column = lk__hlo_reshape(l, b->begin, 2, (int64_t[]){b->rows, 1});
    lk_hlo blocks = lk__hlo_windows(l, padded, column, (int[]){0}, &table[1], (bool[]){false});
    lk_hlo element = lk__hlo_iota(l, LK_I64, (lk_hlo){.rank = 2, .size = {table[0], table[1]}}, 1);
    lk_hlo size = lk__hlo_reshape(l, b->size, 2, (int64_t[]){b->rows, 1});
    blocks = lk__hlo_select(l, lk__hlo_compare(l, element, "LT", size), blocks, zero);
    blocks = lk__hlo_convert(l, blocks, LK_F64);
    int64_t lanes[] = {b->rows, LK_NORM_BLOCK / LK_NORM_LANES, LK_NORM_LANES};
    return lk__hlo_reshape(l, lk__hlo_rounded_mul(l, blocks, blocks), 3, lanes);
}

/* Adds up each row's lanes in order, and then the lanes as a tree: [rows]. */
static lk_hlo lower_norm_block_sums(lk_lowering *l, lk_hlo squares)
{
    int64_t rows = squares.size[0], lanes[] = {rows, LK_NORM_LANES};
    lk_hlo sum = lk__hlo_reshape(l, lk__hlo_slice_axis(l, squares, 1, 0, 1), 2, lanes);
    for (int64_t i = 1; i < squares.size[1]; i++)
        sum = lk__hlo_add(l, sum, lk__hlo_reshape(l, lk__hlo_slice_axis(l, squares, 1, i, i + 1), 2, lanes));
    for (int64_t h = LK_NORM_LANES / 2; h > 0; h /= 2) {
        lk_hlo high = lk__hlo_slice_axis(l, sum, 1, h, 2 * h);
        sum = lk__hlo_add(l, lk__hlo_slice_axis(l, sum, 1, 0, h), high);
    }
    return lk__hlo_reshape(l, sum, 1, &rows);
}

/* Adds the blocks of each segment as a tree, into its first row. */
static lk_hlo lower_norm_trees(lk_lowering *l, lk_hlo sums, const norm_blocks *b)
{
    lk_hlo zero = lk__hlo_number(l, LK_F64, 0), start = lk__hlo_integer(l, LK_I64, 0);
    for (int64_t h = 1; h < b->rows; h *= 2) {
        lk_hlo rest = lk__hlo_slice_axis(l, sums, 0, h, b->rows);
        rest = lk__hlo_pad(l, rest, zero, (int64_t[]){0}, (int64_t[]){h}, (int64_t[]){0});
        lk_hlo phase = lk__hlo_binary(l, "remainder", b->index, lk__hlo_integer(l, LK_I64, 2 * h));
        lk_hlo partner = lk__hlo_add(l, b->index, lk__hlo_integer(l, LK_I64, h));
        lk_hlo has_partner = lk__hlo_compare(l, partner, "LT", b->limit);
        lk_hlo takes = lk__hlo_and(l, lk__hlo_compare(l, phase, "EQ", start), has_partner);
        sums = lk__hlo_select(l, takes, lk__hlo_add(l, sums, rest), sums);
    }
    return sums;
}

void lk__lower_squared_norms(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read(l, call->in[0]), offsets = lk__hlo_read(l, call->in[1]);
    if (call->out[0]->shape.dim[0] == 0) {
        lk__hlo_write(l, call->out[0],
                      lk__hlo_fill(l, lk__hlo_number(l, LK_F64, 0), lk__hlo_like(LK_F64, LK_SHAPE(0))));
        return;
    }
    norm_blocks b = lower_norm_blocks(l, offsets, x.size[0]);
    lk_hlo sums = lower_norm_trees(l, lower_norm_block_sums(l, lower_norm_squares(l, x, &b)), &b);
    lk_hlo is_empty = lk__hlo_compare(l, b.counts, "EQ", lk__hlo_integer(l, LK_I64, 0));
    lk_hlo norms = lk__hlo_gather(l, sums, b.firsts);
    lk__hlo_write(l, call->out[0], lk__hlo_select(l, is_empty, lk__hlo_number(l, LK_F64, 0), norms));
}

/* --- update_scales ------------------------------------------------------------------------------------------------ */

/* Adds neighbors, and theirs, until one is left: x[i] += x[i + h] for h = 1, 2, 4, … and i a multiple of 2 h. */
static lk_hlo lower_tree_sum(lk_lowering *l, lk_hlo x)
{
    int64_t two = 2, one = 1;
    if (x.size[0] == 0)
        return lk__hlo_number(l, x.type, 0);
    while (x.size[0] > 1) {
        int64_t n = x.size[0], begin = 1, pairs = n / 2 * 2;
        lk_hlo even = lk__hlo_slice(l, x, (int64_t[]){0}, &pairs, &two),
               odd = lk__hlo_slice(l, x, &begin, &pairs, &two);
        lk_hlo parts[] = {lk__hlo_add(l, even, odd), x};
        if (n > pairs)
            parts[1] = lk__hlo_slice(l, x, &pairs, &n, &one);
        x = n > pairs ? lk__hlo_concat(l, parts, 2, 0) : parts[0];
    }
    return lk__hlo_reshape(l, x, 0, NULL);
}

static lk_hlo lower_is_above(lk_lowering *l, lk_hlo x, double bound)
{
    return lk__hlo_compare(l, x, "GT", lk__hlo_number(l, x.type, bound));
}

/* A scalar that is true if the update must be skipped. */
static lk_hlo lower_skip_flag(lk_lowering *l, const lk_call *call, lk_hlo norm)
{
    const lk_update_scales_attrs *attrs = LK_ATTRS(call, lk_update_scales_attrs);
    lk_hlo skip = lk__hlo_number(l, LK_HLO_BOOL, 0);
    if (attrs->sticky) {
        lk_hlo given = lk__hlo_read(l, call->in[0]);
        skip = lk__hlo_compare(l, given, "NE", lk__hlo_number(l, given.type, 0));
    }
    if (!attrs->skip_nonfinite)
        return skip;
    lk_hlo is_finite = lk__hlo_is_finite(l, norm);
    if (call->in[4])
        is_finite = lk__hlo_and(l, is_finite, lk__hlo_is_finite(l, lk__hlo_read(l, call->in[4])));
    return lk__hlo_or(l, skip, lk__hlo_unary(l, "not", is_finite));
}

/* f32: the factor of the gradients. */
static lk_hlo lower_clip_scale(lk_lowering *l, double clip_norm, lk_hlo norm)
{
    lk_hlo one = lk__hlo_number(l, LK_F32, 1);
    if (!(clip_norm > 0))
        return one;
    lk_hlo clips = lk__hlo_and(l, lk__hlo_is_finite(l, norm), lower_is_above(l, norm, clip_norm));
    lk_hlo scale = lk__hlo_convert(l, lk__hlo_div(l, lk__hlo_number(l, LK_F64, clip_norm), norm), LK_F32);
    return lk__hlo_select(l, clips, scale, one);
}

/* f32 [n]: LARS' trust ratios. */
static lk_hlo lower_trust_ratios(lk_lowering *l, const lk_call *call, lk_hlo scale)
{
    const lk_update_scales_attrs *attrs = LK_ATTRS(call, lk_update_scales_attrs);
    lk_hlo root = lk__hlo_unary(l, "sqrt", lk__hlo_read(l, call->in[1]));
    lk_hlo g = lk__hlo_rounded_mul(l, lk__hlo_convert(l, scale, LK_F64), root);
    lk_hlo w = lk__hlo_unary(l, "sqrt", lk__hlo_read(l, call->in[2])), adapted = lk__hlo_read(l, call->in[3]);
    lk_hlo decay = lk__hlo_rounded_mul(l, lk__hlo_number(l, LK_F64, attrs->weight_decay), w);
    lk_hlo trusted = lk__hlo_rounded_mul(l, lk__hlo_number(l, LK_F64, attrs->trust), w);
    lk_hlo ratio = lk__hlo_convert(l, lk__hlo_div(l, trusted, lk__hlo_add(l, g, decay)), LK_F32);
    lk_hlo holds = lk__hlo_compare(l, adapted, "NE", lk__hlo_number(l, LK_F32, 0));
    holds = lk__hlo_and(l, holds, lk__hlo_and(l, lower_is_above(l, w, 0), lower_is_above(l, g, 0)));
    holds = lk__hlo_and(l, holds, lk__hlo_and(l, lk__hlo_is_finite(l, w), lk__hlo_is_finite(l, g)));
    return lk__hlo_select(l, holds, ratio, lk__hlo_number(l, LK_F32, 1));
}

void lk__lower_update_scales(lk_lowering *l, const lk_call *call)
{
    const lk_update_scales_attrs *attrs = LK_ATTRS(call, lk_update_scales_attrs);
    lk_hlo norm = lk__hlo_unary(l, "sqrt", lower_tree_sum(l, lk__hlo_read(l, call->in[1])));
    lk_hlo skip = lower_skip_flag(l, call, norm), scale = lower_clip_scale(l, attrs->clip_norm, norm);
    if (call->n_out > 3)
        lk__hlo_write(l, call->out[3], lower_trust_ratios(l, call, scale));
    lk__hlo_write(l, call->out[0], lk__hlo_convert(l, skip, LK_F32));
    lk__hlo_write(l, call->out[1], scale);
    lk__hlo_write(l, call->out[2], norm);
}
