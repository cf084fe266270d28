/* Pooling. A tap is one place in a window; the elements of all windows at that tap are a strided slice of x. */
#include "ops/geometry.h"
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <math.h>

/* Describes how far windows reach beyond x on either side, which may be negative at the end: the rest left over. */
typedef struct pool_reach {
    int64_t low[4], high[4];
} pool_reach;

static pool_reach lower_pool_reach(const lk_geometry *g)
{
    pool_reach reach = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        int64_t covered = (g->out[i] - 1) * g->stride[i] + g->kernel[i];
        reach.low[2 + i] = g->padding[i];
        reach.high[2 + i] = covered - g->padding[i] - g->in[i];
    }
    return reach;
}

/* Returns x with `outside` where windows reach beyond it, and without the rest that no window covers. */
static lk_hlo lower_pool_extend(lk_lowering *l, const lk_geometry *g, lk_hlo x, lk_hlo outside)
{
    pool_reach reach = lower_pool_reach(g);
    return lk__hlo_pad(l, x, outside, reach.low, reach.high, (int64_t[4]){0});
}

static lk_hlo lower_pool_tap(lk_lowering *l, const lk_geometry *g, lk_hlo extended, int64_t tap)
{
    int64_t begin[4] = {0}, end[4], step[4] = {1, 1, g->stride[0], g->stride[1]};
    int64_t at[2] = {tap / g->kernel[1], tap % g->kernel[1]};
    for (int i = 0; i < 4; i++)
        end[i] = extended.size[i];
    for (int i = 0; i < 2; i++) {
        begin[2 + i] = at[i];
        end[2 + i] = at[i] + (g->out[i] - 1) * g->stride[i] + 1;
    }
    return lk__hlo_slice(l, extended, begin, end, step);
}

/* The number in x's plane of the place where each window begins, which may be outside: i32 [out[0], out[1]]. */
static lk_hlo lower_pool_origins(lk_lowering *l, const lk_geometry *g)
{
    lk_hlo like = {.rank = 2, .size = {g->out[0], g->out[1]}}, sum = lk__hlo_integer(l, LK_I32, 0);
    int64_t step[] = {g->in[1], 1};
    for (int i = 0; i < 2; i++) {
        lk_hlo window =
            lk__hlo_mul(l, lk__hlo_iota(l, LK_I32, like, i), lk__hlo_integer(l, LK_I32, g->stride[i] * step[i]));
        lk_hlo origin = lk__hlo_sub(l, window, lk__hlo_integer(l, LK_I32, g->padding[i] * step[i]));
        sum = lk__hlo_add(l, sum, origin);
    }
    return sum;
}

/* The distance in x's plane from a window's beginning to its tap. */
static lk_hlo lower_pool_distance(lk_lowering *l, const lk_geometry *g, int64_t tap)
{
    return lk__hlo_integer(l, LK_I32, tap / g->kernel[1] * g->in[1] + tap % g->kernel[1]);
}

/* Returns whether the windows lie side by side. Each place is then in at most one window. */
static bool lower_pool_is_tiled(const lk_geometry *g)
{
    return g->stride[0] == g->kernel[0] && g->stride[1] == g->kernel[1] && g->padding[0] == 0 && g->padding[1] == 0;
}

/* Repeats each window's element of y at all places of the window, for windows that lie side by side. */
static lk_hlo lower_pool_repeat(lk_lowering *l, const lk_geometry *g, lk_hlo y)
{
    int64_t n = y.size[0], c = y.size[1], h = g->out[0], w = g->out[1], kh = g->kernel[0], kw = g->kernel[1];
    lk_hlo windows = {.rank = 6, .size = {n, c, h, kh, w, kw}};
    y = lk__hlo_broadcast(l, y, windows, (int[]){0, 1, 2, 4});
    return lk__hlo_reshape(l, y, 4, (int64_t[]){n, c, h * kh, w * kw});
}

/* Adds the rest that no window covers, of zeroes. */
static lk_hlo lower_pool_add_rest(lk_lowering *l, const lk_geometry *g, lk_hlo x)
{
    int64_t none[4] = {0}, rest[4] = {0, 0, g->in[0] - x.size[2], g->in[1] - x.size[3]};
    return lk__hlo_pad(l, x, lk__hlo_number(l, x.type, 0), none, rest, none);
}

/* --- maximum ------------------------------------------------------------------------------------------------------ */

/* The best element so far of each window, and its distance from the window's beginning; -1: none yet. */
typedef struct pool_best {
    lk_hlo value, distance;
} pool_best;

/* NaN counts as greater than any number. Of equal elements the first one stays. */
static pool_best lower_pool_compare(lk_lowering *l, pool_best best, lk_hlo x, lk_hlo is_inside, lk_hlo distance)
{
    lk_hlo is_new = lk__hlo_and(l, lk__hlo_is_nan(l, x), lk__hlo_compare(l, best.value, "EQ", best.value));
    lk_hlo is_better = lk__hlo_or(l, lk__hlo_compare(l, x, "GT", best.value), is_new);
    lk_hlo is_first = lk__hlo_compare(l, best.distance, "LT", lk__hlo_integer(l, LK_I32, 0));
    lk_hlo takes = lk__hlo_and(l, is_inside, lk__hlo_or(l, is_first, is_better));
    best.value = lk__hlo_select(l, takes, x, best.value);
    best.distance = lk__hlo_select(l, takes, distance, best.distance);
    return best;
}

lk_hlo lk__hlo_max_pool(lk_lowering *l, const lk_geometry *g, lk_hlo x, lk_hlo *where)
{
    lk_hlo plane = {.rank = 4, .size = {1, 1, g->in[0], g->in[1]}};
    lk_hlo windows = {.rank = 4, .size = {g->images, g->channels, g->out[0], g->out[1]}};
    lk_hlo yes = lk__hlo_number(l, LK_HLO_BOOL, 1), no = lk__hlo_number(l, LK_HLO_BOOL, 0);
    lk_hlo least = lk__hlo_number(l, x.type, -INFINITY), none = lk__hlo_integer(l, LK_I32, -1);
    lk_hlo inside = lower_pool_extend(l, g, lk__hlo_fill(l, yes, plane), no);
    pool_best best = {lk__hlo_fill(l, least, windows), lk__hlo_fill(l, none, windows)};
    x = lower_pool_extend(l, g, x, least);
    for (int64_t tap = 0; tap < g->kernel[0] * g->kernel[1]; tap++)
        best = lower_pool_compare(l, best, lower_pool_tap(l, g, x, tap), lower_pool_tap(l, g, inside, tap),
                                  lower_pool_distance(l, g, tap));
    *where = lk__hlo_add(l, best.distance, lower_pool_origins(l, g));
    return best.value;
}

void lk__lower_max_pool2d(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read(l, call->in[0]), where;
    lk_geometry g = lk__geometry_of_pool(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
    lk__hlo_write(l, call->out[0], lk__hlo_max_pool(l, &g, x, &where));
    lk__hlo_write(l, call->out[1], where);
}

/* Returns images of x's size with the elements of dy at the places that `tap` has in x. */
static lk_hlo lower_pool_spread(lk_lowering *l, const lk_geometry *g, lk_hlo dy, int64_t tap)
{
    int64_t low[4] = {0}, high[4] = {0}, inside[4] = {0, 0, g->stride[0] - 1, g->stride[1] - 1};
    int64_t at[2] = {tap / g->kernel[1], tap % g->kernel[1]};
    for (int i = 0; i < 2; i++) {
        low[2 + i] = at[i] - g->padding[i];
        high[2 + i] = g->in[i] - low[2 + i] - ((g->out[i] - 1) * g->stride[i] + 1);
    }
    return lk__hlo_pad(l, dy, lk__hlo_number(l, dy.type, 0), low, high, inside);
}

/* The distance of each place from the beginning of its window, for windows that lie side by side: i32 [1, 1, H, W]. */
static lk_hlo lower_pool_distances(lk_lowering *l, const lk_geometry *g)
{
    lk_hlo like = {.rank = 4, .size = {1, 1, g->out[0] * g->kernel[0], g->out[1] * g->kernel[1]}};
    lk_hlo row = lk__hlo_iota(l, LK_I32, like, 2), column = lk__hlo_iota(l, LK_I32, like, 3);
    row = lk__hlo_binary(l, "remainder", row, lk__hlo_integer(l, LK_I32, g->kernel[0]));
    column = lk__hlo_binary(l, "remainder", column, lk__hlo_integer(l, LK_I32, g->kernel[1]));
    return lk__hlo_add(l, lk__hlo_mul(l, row, lk__hlo_integer(l, LK_I32, g->in[1])), column);
}

lk_hlo lk__hlo_max_pool_grad(lk_lowering *l, const lk_geometry *g, lk_hlo dy, lk_hlo where)
{
    lk_hlo zero = lk__hlo_number(l, dy.type, 0), sum = zero;
    lk_hlo distances = lk__hlo_sub(l, where, lower_pool_origins(l, g));
    if (lower_pool_is_tiled(g)) {
        lk_hlo is_here = lk__hlo_compare(l, lower_pool_repeat(l, g, distances), "EQ", lower_pool_distances(l, g));
        return lower_pool_add_rest(l, g, lk__hlo_select(l, is_here, lower_pool_repeat(l, g, dy), zero));
    }
    for (int64_t tap = 0; tap < g->kernel[0] * g->kernel[1]; tap++) {
        lk_hlo is_here = lk__hlo_compare(l, distances, "EQ", lower_pool_distance(l, g, tap));
        lk_hlo part = lower_pool_spread(l, g, lk__hlo_select(l, is_here, dy, zero), tap);
        sum = tap ? lk__hlo_add(l, sum, part) : part;
    }
    return sum;
}

void lk__lower_max_pool2d_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), where = lk__hlo_read(l, call->in[1]);
    lk_geometry g =
        lk__geometry_of_pool(call->out[0]->shape, call->in[0]->shape, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    lk__hlo_write(l, call->out[0], lk__hlo_max_pool_grad(l, &g, dy, where));
}

/* --- mean --------------------------------------------------------------------------------------------------------- */

/* The numbers of elements that each window along an axis counts, [out]. */
static lk_hlo lower_pool_counts(lk_lowering *l, const lk_geometry *g, int axis)
{
    lk_hlo like = {.rank = 1, .size = {g->out[axis]}};
    lk_hlo begin = lk__hlo_mul(l, lk__hlo_iota(l, LK_I32, like, 0), lk__hlo_integer(l, LK_I32, g->stride[axis]));
    begin = lk__hlo_sub(l, begin, lk__hlo_integer(l, LK_I32, g->padding[axis]));
    lk_hlo end = lk__hlo_add(l, begin, lk__hlo_integer(l, LK_I32, g->kernel[axis]));
    begin = lk__hlo_binary(l, "maximum", begin, lk__hlo_integer(l, LK_I32, 0));
    end = lk__hlo_binary(l, "minimum", end, lk__hlo_integer(l, LK_I32, g->in[axis]));
    return lk__hlo_sub(l, end, begin);
}

/* The divisor of each window: [out[0], out[1]], or a scalar if it is one for all. */
static lk_hlo lower_pool_divisors(lk_lowering *l, const lk_geometry *g, int type)
{
    bool is_one = g->count_padding || (g->padding[0] == 0 && g->padding[1] == 0);
    if (is_one)
        return lk__hlo_number(l, type, (double)(g->kernel[0] * g->kernel[1]));
    lk_hlo rows = lk__hlo_reshape(l, lower_pool_counts(l, g, 0), 2, (int64_t[]){g->out[0], 1});
    return lk__hlo_convert(l, lk__hlo_mul(l, rows, lower_pool_counts(l, g, 1)), type);
}

/* The sum of each window: of its taps if they are few, which are then added as they come from memory. */
static lk_hlo lower_pool_sums(lk_lowering *l, const lk_geometry *g, lk_hlo x)
{
    enum { FEW = 16 };
    pool_reach reach = lower_pool_reach(g);
    int64_t window[] = {1, 1, g->kernel[0], g->kernel[1]}, stride[] = {1, 1, g->stride[0], g->stride[1]};
    if (window[2] * window[3] > FEW)
        return lk__hlo_window_sums(l, x, window, stride, reach.low, reach.high);
    lk_hlo extended = lower_pool_extend(l, g, x, lk__hlo_number(l, x.type, 0));
    lk_hlo sum = lower_pool_tap(l, g, extended, 0);
    for (int64_t tap = 1; tap < window[2] * window[3]; tap++)
        sum = lk__hlo_add(l, sum, lower_pool_tap(l, g, extended, tap));
    return sum;
}

lk_hlo lk__hlo_avg_pool(lk_lowering *l, const lk_geometry *g, lk_hlo x)
{
    lk_hlo sums = lower_pool_sums(l, g, x), zero = lk__hlo_number(l, x.type, 0);
    sums = lk__hlo_select(l, lk__hlo_compare(l, sums, "EQ", zero), zero, sums); /* no -0, as if sums began with 0 */
    return lk__hlo_div(l, sums, lower_pool_divisors(l, g, x.type));
}

lk_hlo lk__hlo_pool_shares(lk_lowering *l, const lk_geometry *g, lk_hlo dy)
{
    return lk__hlo_div(l, dy, lower_pool_divisors(l, g, dy.type));
}

/* The shares are spread by the stride, and each place sums up the windows that cover it. */
lk_hlo lk__hlo_pool_spread(lk_lowering *l, const lk_geometry *g, lk_hlo shares)
{
    int64_t low[4] = {0}, high[4] = {0}, inside[4] = {0, 0, g->stride[0] - 1, g->stride[1] - 1};
    int64_t window[] = {1, 1, g->kernel[0], g->kernel[1]};
    if (lower_pool_is_tiled(g))
        return lower_pool_add_rest(l, g, lower_pool_repeat(l, g, shares));
    for (int i = 0; i < 2; i++) {
        low[2 + i] = g->kernel[i] - 1 - g->padding[i];
        high[2 + i] = g->in[i] + g->kernel[i] - 1 - low[2 + i] - ((g->out[i] - 1) * g->stride[i] + 1);
    }
    lk_hlo spread = lk__hlo_pad(l, shares, lk__hlo_number(l, shares.type, 0), low, high, inside);
    return lk__hlo_window_sums(l, spread, window, (int64_t[]){1, 1, 1, 1}, (int64_t[4]){0}, (int64_t[4]){0});
}

void lk__lower_avg_pool2d(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read_float(l, call->in[0]);
    lk_geometry g = lk__geometry_of_pool(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
    lk__hlo_write(l, call->out[0], lk__hlo_avg_pool(l, &g, x));
}

void lk__lower_avg_pool2d_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]);
    lk_geometry g =
        lk__geometry_of_pool(call->out[0]->shape, call->in[0]->shape, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    lk__hlo_write(l, call->out[0], lk__hlo_pool_spread(l, &g, lk__hlo_pool_shares(l, &g, dy)));
}
