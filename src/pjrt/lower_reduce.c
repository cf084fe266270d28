/* sum, mean, max and its gradient, argmax, softmax and log_softmax. */
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <math.h>

/* --- sum and mean ------------------------------------------------------------------------------------------------- */

void lk__lower_sum(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read_float(l, call->in[0]);
    lk_hlo y = lk__hlo_reduce(l, "add", x, LK_ATTRS(call, lk_reduce_attrs)->axes);
    lk__hlo_write(l, call->out[0], lk__hlo_reshape_as(l, y, call->out[0]->shape));
}

void lk__lower_mean(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read_float(l, call->in[0]);
    lk_hlo y = lk__hlo_reduce(l, "add", x, LK_ATTRS(call, lk_reduce_attrs)->axes);
    int64_t count = lk__hlo_count(&y) ? lk__hlo_count(&x) / lk__hlo_count(&y) : 1;
    y = lk__hlo_div(l, y, lk__hlo_number(l, y.type, (double)count));
    lk__hlo_write(l, call->out[0], lk__hlo_reshape_as(l, y, call->out[0]->shape));
}

/* --- maximum ------------------------------------------------------------------------------------------------------ */

/* The maximum along axes, which are kept. NaN reaches the result: a plug-in's own maximum may drop it. */
static lk_hlo lower_maximum(lk_lowering *l, lk_hlo x, unsigned axes)
{
    lk_hlo maximum = lk__hlo_reduce_keep(l, "maximum", x, axes);
    if (!lk__dtype_is_float((lk_dtype)x.type))
        return maximum;
    lk_hlo has_nan = lk__hlo_reduce_keep(l, "or", lk__hlo_is_nan(l, x), axes);
    return lk__hlo_select(l, has_nan, lk__hlo_number(l, x.type, NAN), maximum);
}

void lk__lower_max(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read_float(l, call->in[0]);
    lk_hlo y = lower_maximum(l, x, LK_ATTRS(call, lk_reduce_attrs)->axes);
    lk__hlo_write(l, call->out[0], lk__hlo_reshape_as(l, y, call->out[0]->shape));
}

/* The elements of x that are the maximum: equal to it, or NaN as it is. */
static lk_hlo lower_is_maximum(lk_lowering *l, lk_hlo x, lk_hlo maximum)
{
    lk_hlo is_equal = lk__hlo_compare(l, x, "EQ", maximum);
    return lk__dtype_is_float((lk_dtype)x.type) ? lk__hlo_or(l, is_equal, lk__hlo_is_nan(l, x)) : is_equal;
}

/* The number of each element in row-major order. */
static lk_hlo lower_element_numbers(lk_lowering *l, lk_hlo like)
{
    int64_t count = lk__hlo_count(&like);
    lk_hlo numbers = lk__hlo_iota(l, LK_I64, (lk_hlo){.rank = 1, .size = {count}}, 0);
    return lk__hlo_reshape(l, numbers, like.rank, like.size);
}

/* dx = dy at the first maximum, otherwise 0. */
void lk__lower_max_grad(lk_lowering *l, const lk_call *call)
{
    unsigned axes = LK_ATTRS(call, lk_reduce_attrs)->axes;
    int64_t kept[LK_HLO_AXES];
    lk_hlo dy = lk__hlo_read(l, call->in[0]), x = lk__hlo_read(l, call->in[1]), y = lk__hlo_read(l, call->in[2]);
    for (int i = 0; i < x.rank; i++)
        kept[i] = axes >> i & 1 ? 1 : x.size[i];
    dy = lk__hlo_reshape(l, dy, x.rank, kept);
    y = lk__hlo_reshape(l, y, x.rank, kept);
    lk_hlo numbers = lower_element_numbers(l, x), none = lk__hlo_integer(l, LK_I64, INT64_MAX);
    lk_hlo candidates = lk__hlo_select(l, lower_is_maximum(l, x, y), numbers, none);
    lk_hlo first = lk__hlo_reduce_keep(l, "minimum", candidates, axes);
    lk_hlo is_first = lk__hlo_compare(l, numbers, "EQ", first);
    lk__hlo_write(l, call->out[0], lk__hlo_select(l, is_first, dy, lk__hlo_number(l, dy.type, 0)));
}

void lk__lower_argmax(lk_lowering *l, const lk_call *call)
{
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    lk_hlo x = lk__hlo_read(l, call->in[0]);
    lk_hlo maximum = lower_maximum(l, x, 1u << axis);
    lk_hlo none = lk__hlo_integer(l, LK_I64, INT64_MAX), index = lk__hlo_iota(l, LK_I64, x, axis);
    lk_hlo candidates = lk__hlo_select(l, lower_is_maximum(l, x, maximum), index, none);
    lk__hlo_write(l, call->out[0], lk__hlo_reduce(l, "minimum", candidates, 1u << axis));
}

/* --- softmax ------------------------------------------------------------------------------------------------------ */

lk_hlo lk__hlo_below_max(lk_lowering *l, lk_hlo x, int axis)
{
    return lk__hlo_sub(l, x, lk__hlo_reduce_keep(l, "maximum", x, 1u << axis));
}

lk_hlo lk__hlo_softmax(lk_lowering *l, lk_hlo below, int axis)
{
    lk_hlo powers = lk__hlo_unary(l, "exponential", below);
    return lk__hlo_div(l, powers, lk__hlo_reduce_keep(l, "add", powers, 1u << axis));
}

lk_hlo lk__hlo_log_sum(lk_lowering *l, lk_hlo below, int axis)
{
    lk_hlo powers = lk__hlo_unary(l, "exponential", below);
    return lk__hlo_unary(l, "log", lk__hlo_reduce_keep(l, "add", powers, 1u << axis));
}

void lk__lower_softmax(lk_lowering *l, const lk_call *call)
{
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    lk_hlo below = lk__hlo_below_max(l, lk__hlo_read_float(l, call->in[0]), axis);
    lk__hlo_write(l, call->out[0], lk__hlo_softmax(l, below, axis));
}

void lk__lower_log_softmax(lk_lowering *l, const lk_call *call)
{
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    lk_hlo below = lk__hlo_below_max(l, lk__hlo_read_float(l, call->in[0]), axis);
    lk__hlo_write(l, call->out[0], lk__hlo_sub(l, below, lk__hlo_log_sum(l, below, axis)));
}

/* dx = y (dy - Σ dy y) */
void lk__lower_softmax_grad(lk_lowering *l, const lk_call *call)
{
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), y = lk__hlo_read_float(l, call->in[1]);
    lk_hlo dot = lk__hlo_reduce_keep(l, "add", lk__hlo_mul(l, dy, y), 1u << axis);
    lk__hlo_write(l, call->out[0], lk__hlo_mul(l, y, lk__hlo_sub(l, dy, dot)));
}

/* dx = dy - exp(y) Σ dy */
void lk__lower_log_softmax_grad(lk_lowering *l, const lk_call *call)
{
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), y = lk__hlo_read_float(l, call->in[1]);
    lk_hlo sum = lk__hlo_reduce_keep(l, "add", dy, 1u << axis);
    lk__hlo_write(l, call->out[0], lk__hlo_sub(l, dy, lk__hlo_mul(l, lk__hlo_unary(l, "exponential", y), sum)));
}
