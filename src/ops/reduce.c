/* sum, mean and max over axes, and argmax over one. */
#include "ops/reduce.h"
#include "core/shape.h"
#include "ops/support.h"

static bool axis_is_reduced(unsigned axes, int axis)
{
    return (axes >> axis & 1) != 0;
}

static lk_shape reduced_shape(lk_shape x, unsigned axes, bool keepdim)
{
    lk_shape y = {0};
    for (int i = 0; i < x.ndim; i++) {
        if (!axis_is_reduced(axes, i))
            y.dim[y.ndim++] = x.dim[i];
        else if (keepdim)
            y.dim[y.ndim++] = 1;
    }
    return y;
}

/* Returns how many elements of x are reduced to one of y. */
static int64_t reduced_count(lk_shape x, unsigned axes)
{
    int64_t count = 1;
    for (int i = 0; i < x.ndim; i++)
        count *= axis_is_reduced(axes, i) ? x.dim[i] : 1;
    return count;
}

static lk_status reduce_infer(const lk_call *call, unsigned dtypes, lk_meta *out)
{
    const lk_reduce_attrs *attrs = LK_ATTRS(call, lk_reduce_attrs);
    const lk_tensor *x = call->in[0];
    LK_TRY(lk__check_dtype(call->op->name, "x", x->dtype, dtypes));
    out[0] = (lk_meta){x->dtype, reduced_shape(x->shape, attrs->axes, attrs->keepdim)};
    return LK_OK;
}

static lk_status reduce_check_not_empty(const lk_call *call, unsigned axes)
{
    lk_shape x = call->in[0]->shape;
    if (reduced_count(x, axes) == 0)
        LK_FAIL(LK_ERR_SHAPE, "%s: over no elements: x has shape %s; every reduced axis must have at least 1",
                call->op->name, lk__text(x).string);
    return LK_OK;
}

static lk_status reduce_sum_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(reduce_infer(call, LK_ALL_DTYPES, out));
    out[0].dtype = lk__result_dtype(out[0].dtype, LK_ATTRS(call, lk_reduce_attrs)->f32);
    return LK_OK;
}

static lk_status reduce_mean_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(reduce_check_not_empty(call, LK_ATTRS(call, lk_reduce_attrs)->axes));
    return reduce_infer(call, LK_FLOATS, out);
}

static lk_status reduce_max_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(reduce_check_not_empty(call, LK_ATTRS(call, lk_reduce_attrs)->axes));
    return reduce_infer(call, LK_ALL_DTYPES, out);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* din[0] = dy, repeated along the reduced axes. */
static lk_status reduce_repeat_gradient(lk_gradient *g, lk_tensor *dy)
{
    lk_call_site at = g->call->place;
    lk_shape x = g->call->in[0]->shape;
    lk_shape kept = reduced_shape(x, LK_ATTRS(g->call, lk_reduce_attrs)->axes, true);
    g->din[0] = lk_expand_at(at, lk_reshape_at(at, dy, kept), x);
    return lk__made(g->din[0]);
}

static lk_status sum_gradient(lk_gradient *g)
{
    return g->dout[0] && g->need[0] ? reduce_repeat_gradient(g, g->dout[0]) : LK_OK;
}

static lk_status mean_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    int64_t count = reduced_count(g->call->in[0]->shape, LK_ATTRS(g->call, lk_reduce_attrs)->axes);
    return reduce_repeat_gradient(g, lk_mul_scalar_at(g->call->place, g->dout[0], 1.0 / (double)count));
}

static lk_status reduce_max_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_reduce_attrs *attrs = LK_ATTRS(call, lk_reduce_attrs);
    const lk_tensor *dy = call->in[0], *x = call->in[1], *y = call->in[2];
    lk_shape shape = reduced_shape(x->shape, attrs->axes, attrs->keepdim);
    LK_TRY(lk__check_dtype(op, "dy", dy->dtype, LK_FLOATS));
    LK_TRY(lk__check_same_dtype(call));
    LK_TRY(lk__check_like(op, "dy", dy, dy->dtype, shape));
    LK_TRY(lk__check_like(op, "y", y, dy->dtype, shape));
    out[0] = (lk_meta){x->dtype, x->shape};
    return LK_OK;
}

static lk_status max_gradient(lk_gradient *g)
{
    return lk__gradient_call(g, &lk__op_max_grad, (lk_tensor *[]){g->dout[0], g->call->in[0], g->call->out[0]}, 3);
}

const lk_op lk__op_sum = {
    .name = "sum",
    .id = LK_OP_SUM,
    .infer = reduce_sum_infer,
    .gradient = sum_gradient,
    .flops = lk__flops_input,
};

const lk_op lk__op_mean = {
    .name = "mean",
    .id = LK_OP_MEAN,
    .infer = reduce_mean_infer,
    .gradient = mean_gradient,
    .flops = lk__flops_input,
};

const lk_op lk__op_max = {
    .name = "max",
    .id = LK_OP_MAX,
    .infer = reduce_max_infer,
    .gradient = max_gradient,
    .flops = lk__flops_input,
};

const lk_op lk__op_max_grad = {
    .name = "max_grad",
    .id = LK_OP_MAX_GRAD,
    .infer = reduce_max_grad_infer,
    .flops = lk__flops_output,
};

/* --- functions ---------------------------------------------------------------------------------------------------- */

/* Sets the bits of the axes that `opts` names; if it names none, all of them. */
static lk_status reduce_parse_opts(const char *op, const lk_tensor *x, const lk_reduce_opts *opts,
                                   lk_reduce_attrs *attrs)
{
    *attrs = (lk_reduce_attrs){.keepdim = opts && opts->keepdim};
    if (!opts || opts->n_axes == 0) {
        attrs->axes = (1u << x->shape.ndim) - 1;
        return LK_OK;
    }
    if (opts->n_axes < 0 || opts->n_axes > LK_MAX_DIMS)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: n_axes is %d; it must be between 0 and %d", op, opts->n_axes, LK_MAX_DIMS);
    for (int i = 0; i < opts->n_axes; i++) {
        int axis;
        LK_TRY(lk__axis(op, opts->axes[i], x->shape.ndim, &axis));
        if (axis_is_reduced(attrs->axes, axis))
            LK_FAIL(LK_ERR_ARGUMENT, "%s: axis %d is named twice", op, axis);
        attrs->axes |= 1u << axis;
    }
    return LK_OK;
}

static lk_tensor *reduce_call(lk_call_site at, const lk_op *op, lk_tensor *x, const lk_reduce_opts *opts, bool f32)
{
    lk_reduce_attrs attrs;
    if (!x)
        return lk__missing_tensor(op->name, "x");
    if (reduce_parse_opts(op->name, x, opts, &attrs) != LK_OK)
        return NULL;
    attrs.f32 = f32;
    return lk__call_simple(at, op, &x, 1, 1, &attrs, sizeof attrs);
}

lk_tensor *lk__sum(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts, bool f32)
{
    return reduce_call(at, &lk__op_sum, x, opts, f32);
}

lk_tensor *lk_sum_at(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts)
{
    return lk__sum(at, x, opts, false);
}

lk_tensor *lk_mean_at(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts)
{
    return reduce_call(at, &lk__op_mean, x, opts, false);
}

lk_tensor *lk_max_at(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts)
{
    return reduce_call(at, &lk__op_max, x, opts, false);
}

/* --- argmax ------------------------------------------------------------------------------------------------------- */

static lk_status reduce_argmax_infer(const lk_call *call, lk_meta *out)
{
    unsigned axes = 1u << LK_ATTRS(call, lk_axis_attrs)->axis;
    LK_TRY(reduce_check_not_empty(call, axes));
    out[0] = (lk_meta){LK_I64, reduced_shape(call->in[0]->shape, axes, false)};
    return LK_OK;
}

const lk_op lk__op_argmax = {
    .name = "argmax", .id = LK_OP_ARGMAX, .infer = reduce_argmax_infer, .flops = lk__flops_input};

lk_tensor *lk_argmax_at(lk_call_site at, lk_tensor *x, int axis)
{
    return lk__call_axis(at, &lk__op_argmax, x, axis);
}
