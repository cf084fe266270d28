/* Max and average pooling, global pooling, and their gradients. */
#include "ops/pool2d.h"
#include "ops/support.h"

#include <inttypes.h>

_Static_assert(sizeof(lk_pool2d_grad_attrs) <= LK_MAX_ATTRS, "attributes of pooling's gradients");

lk_status lk__pool2d_shape(const char *op, lk_shape x, const lk_pool2d_opts *opts, lk_shape *y)
{
    if (x.ndim != 4)
        LK_FAIL(LK_ERR_SHAPE, "%s: x has shape %s; it must be [N, C, H, W]", op, lk__text(x).string);
    if (x.dim[1] < 1 || x.dim[2] < 1 || x.dim[3] < 1)
        LK_FAIL(LK_ERR_SHAPE, "%s: x has shape %s; no size but that of the batch may be 0", op, lk__text(x).string);
    *y = LK_SHAPE(x.dim[0], x.dim[1], 0, 0);
    for (int i = 0; i < 2; i++) {
        const char *axis = i ? "W" : "H";
        lk_window window = {opts->kernel[i], opts->stride[i], opts->padding[i], 1};
        if (window.kernel >= 1 && window.padding > window.kernel / 2)
            LK_FAIL(LK_ERR_ARGUMENT, "%s: padding of %lld along %s; it must be at most %lld, half the kernel of %lld",
                    op, (long long)window.padding, axis, (long long)(window.kernel / 2), (long long)window.kernel);
        LK_TRY(lk__window_count(op, axis, x.dim[2 + i], window, &y->dim[2 + i]));
    }
    return LK_OK;
}

static bool pool_is_apart(const lk_pool2d_opts *opts, int axis)
{
    return opts->padding[axis] == 0 && opts->kernel[axis] <= opts->stride[axis];
}

bool lk__pool2d_has_taps(const lk_pool2d_opts *opts)
{
    return pool_is_apart(opts, 0) && pool_is_apart(opts, 1) && opts->kernel[0] * opts->kernel[1] <= LK_POOL_TAPS;
}

lk_status lk__pool2d_check_taps(const char *op, const lk_pool2d_opts *opts)
{
    if (lk__pool2d_has_taps(opts))
        return LK_OK;
    if (pool_is_apart(opts, 0) && pool_is_apart(opts, 1))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: windows have %lld elements; they must have at most %d", op,
                (long long)(opts->kernel[0] * opts->kernel[1]), LK_POOL_TAPS);
    LK_FAIL(LK_ERR_ARGUMENT, "%s: windows overlap or have padding, which only max_pool2d takes", op);
}

static lk_status pool_check_x(const lk_call *call, lk_shape *y)
{
    LK_TRY(lk__check_dtype(call->op->name, "x", call->in[0]->dtype, LK_FLOATS));
    return lk__pool2d_shape(call->op->name, call->in[0]->shape, LK_ATTRS(call, lk_pool2d_opts), y);
}

static double pool_flops(const lk_call *call)
{
    const lk_pool2d_opts *opts = LK_ATTRS(call, lk_pool2d_opts);
    return lk__flops_output(call) * (double)opts->kernel[0] * (double)opts->kernel[1];
}

/* --- gradients: dy → dx ------------------------------------------------------------------------------------------- */

static lk_status pool_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_pool2d_grad_attrs *attrs = LK_ATTRS(call, lk_pool2d_grad_attrs);
    const lk_tensor *dy = call->in[0];
    lk_shape y;
    LK_TRY(lk__check_dtype(op, "dy", dy->dtype, LK_FLOATS));
    LK_TRY(lk__check_ndim(op, "dy", dy, 4));
    lk_shape x = LK_SHAPE(dy->shape.dim[0], dy->shape.dim[1], attrs->height, attrs->width);
    LK_TRY(lk__pool2d_shape(op, x, &attrs->pool, &y));
    LK_TRY(lk__check_like(op, "dy", dy, dy->dtype, y));
    if (call->op->id == LK_OP_MAX_POOL2D_GRAD)
        LK_TRY(lk__check_like(op, "where", call->in[1], LK_I32, y));
    if (call->op->id == LK_OP_RELU_AVG_POOL2D_GRAD)
        LK_TRY(lk__check_like(op, "x", call->in[1], dy->dtype, x));
    if (call->op->id == LK_OP_RELU_MAX_POOL2D_GRAD) {
        LK_TRY(lk__pool2d_check_taps(op, &attrs->pool));
        LK_TRY(lk__check_like(op, "where", call->in[1], LK_U8, y));
    }
    out[0] = (lk_meta){dy->dtype, x};
    return LK_OK;
}

static double pool_grad_flops(const lk_call *call)
{
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    return lk__flops_input(call) * (double)opts->kernel[0] * (double)opts->kernel[1];
}

const lk_op lk__op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .id = LK_OP_MAX_POOL2D_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = pool_grad_infer,
    .flops = lk__flops_input,
};

const lk_op lk__op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .id = LK_OP_AVG_POOL2D_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = pool_grad_infer,
    .flops = pool_grad_flops,
};

const lk_op lk__op_relu_avg_pool2d_grad = {
    .name = "relu_avg_pool2d_grad",
    .id = LK_OP_RELU_AVG_POOL2D_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = pool_grad_infer,
    .flops = pool_grad_flops,
};

const lk_op lk__op_relu_max_pool2d_grad = {
    .name = "relu_max_pool2d_grad",
    .id = LK_OP_RELU_MAX_POOL2D_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = pool_grad_infer,
    .flops = lk__flops_input,
};

static lk_status pool_gradient(lk_gradient *g, const lk_op *op, lk_tensor *const *in, int n_in)
{
    lk_shape x = g->call->in[0]->shape;
    lk_pool2d_grad_attrs attrs = {.pool = *LK_ATTRS(g->call, lk_pool2d_opts), .height = x.dim[2], .width = x.dim[3]};
    g->din[0] = lk__call_simple(g->call->place, op, in, n_in, n_in, &attrs, sizeof attrs);
    return lk__made(g->din[0]);
}

static lk_status max_pool2d_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    return pool_gradient(g, &lk__op_max_pool2d_grad, (lk_tensor *[]){g->dout[0], g->call->out[1]}, 2);
}

static lk_status avg_pool2d_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    return pool_gradient(g, &lk__op_avg_pool2d_grad, &g->dout[0], 1);
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

static lk_status max_pool2d_infer(const lk_call *call, lk_meta *out)
{
    lk_shape y, x = call->in[0]->shape;
    LK_TRY(pool_check_x(call, &y));
    if (x.dim[2] > 0 && x.dim[3] > INT32_MAX / x.dim[2])
        LK_FAIL(LK_ERR_SHAPE, "%s: planes of %" PRId64 "x%" PRId64 " pixels; positions in them are 32-bit integers",
                call->op->name, x.dim[2], x.dim[3]);
    out[0] = (lk_meta){call->in[0]->dtype, y};
    out[1] = (lk_meta){LK_I32, y};
    return LK_OK;
}

static lk_status relu_max_pool2d_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(max_pool2d_infer(call, out));
    out[1].dtype = LK_U8;
    return lk__pool2d_check_taps(call->op->name, LK_ATTRS(call, lk_pool2d_opts));
}

static lk_status avg_pool2d_infer(const lk_call *call, lk_meta *out)
{
    out[0].dtype = call->in[0]->dtype;
    return pool_check_x(call, &out[0].shape);
}

const lk_op lk__op_max_pool2d = {
    .name = "max_pool2d",
    .id = LK_OP_MAX_POOL2D,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = max_pool2d_infer,
    .gradient = max_pool2d_gradient,
    .flops = pool_flops,
};

const lk_op lk__op_avg_pool2d = {
    .name = "avg_pool2d",
    .id = LK_OP_AVG_POOL2D,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = avg_pool2d_infer,
    .gradient = avg_pool2d_gradient,
    .flops = pool_flops,
};

const lk_op lk__op_relu_avg_pool2d = {
    .name = "relu_avg_pool2d",
    .id = LK_OP_RELU_AVG_POOL2D,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = avg_pool2d_infer,
    .flops = pool_flops,
};

const lk_op lk__op_relu_max_pool2d = {
    .name = "relu_max_pool2d",
    .id = LK_OP_RELU_MAX_POOL2D,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = relu_max_pool2d_infer,
    .flops = pool_flops,
};

static lk_tensor *pool_call(lk_call_site at, const lk_op *op, int n_out, lk_tensor *x, const lk_pool2d_opts *opts)
{
    if (!x || !opts)
        return lk__missing_tensor(op->name, x ? "opts (the kernel has no default)" : "x");
    lk_pool2d_opts attrs = *opts;
    for (int i = 0; i < 2; i++)
        attrs.stride[i] = attrs.stride[i] ? attrs.stride[i] : attrs.kernel[i];
    lk_call call = {.op = op, .place = at, .n_in = 1, .n_out = n_out, .in = {x}};
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    return lk__call_first(&call);
}

lk_tensor *lk_max_pool2d_at(lk_call_site at, lk_tensor *x, const lk_pool2d_opts *opts)
{
    return pool_call(at, &lk__op_max_pool2d, 2, x, opts);
}

lk_tensor *lk_avg_pool2d_at(lk_call_site at, lk_tensor *x, const lk_pool2d_opts *opts)
{
    return pool_call(at, &lk__op_avg_pool2d, 1, x, opts);
}

/* The options of global pooling: a kernel of x's height and width. The operator refuses an x that is not [N, C, H,
 * W]. */
static lk_pool2d_opts pool_global_opts(const lk_tensor *x)
{
    lk_pool2d_opts opts = {.kernel = {1, 1}};
    for (int i = 0; x && x->shape.ndim == 4 && i < 2; i++)
        opts.kernel[i] = x->shape.dim[2 + i];
    return opts;
}

lk_tensor *lk_global_max_pool2d_at(lk_call_site at, lk_tensor *x)
{
    lk_pool2d_opts opts = pool_global_opts(x);
    return lk_max_pool2d_at(at, x, &opts);
}

lk_tensor *lk_global_avg_pool2d_at(lk_call_site at, lk_tensor *x)
{
    lk_pool2d_opts opts = pool_global_opts(x);
    return lk_avg_pool2d_at(at, x, &opts);
}
