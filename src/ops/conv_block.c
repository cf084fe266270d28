#include "ops/conv_block.h"
#include "ops/conv2d.h"
#include "ops/pool2d.h"
#include "ops/support.h"

_Static_assert(sizeof(lk_conv_block_attrs) <= LK_MAX_ATTRS, "attributes of conv_block");

/* Sets *conv to the shape of conv2d's result and *y to that of the pooling's. */
static lk_status conv_block_shapes(const char *op, lk_shape x, lk_shape w, const lk_conv_block_attrs *attrs,
                                   lk_shape *conv, lk_shape *y)
{
    LK_TRY(lk__conv2d_shape(op, x, w, &attrs->conv, conv));
    *y = *conv;
    if (attrs->pooling == LK_BLOCK_NO_POOL)
        return LK_OK;
    LK_TRY(lk__pool2d_shape(op, *conv, &attrs->pool, y));
    for (int i = 0; i < 2; i++)
        if (attrs->pool.stride[i] < attrs->pool.kernel[i])
            LK_FAIL(LK_ERR_ARGUMENT,
                    "%s: pooling with a kernel of %lld and a stride of %lld along %s; windows must not "
                    "overlap",
                    op, (long long)attrs->pool.kernel[i], (long long)attrs->pool.stride[i], i ? "W" : "H");
    return LK_OK;
}

/* Floating-point operations of relu and pooling, forward or backward, for the convolution's result `conv`. */
static double conv_block_tail_flops(const lk_conv_block_attrs *attrs, const lk_tensor *conv, const lk_tensor *y,
                                    bool back)
{
    double flops = attrs->relu ? (double)lk_tensor_count(conv) : 0;
    if (attrs->pooling == LK_BLOCK_NO_POOL)
        return flops;
    bool window = !back || attrs->pooling == LK_BLOCK_AVG_POOL;
    double taps = window ? (double)attrs->pool.kernel[0] * (double)attrs->pool.kernel[1] : 1;
    return flops + (double)lk_tensor_count(y) * taps;
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

static lk_status conv_block_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    const lk_tensor *dy = call->in[0], *saved = call->in[1], *x = call->in[2], *w = call->in[3];
    lk_shape conv, y;
    int n = 0;
    LK_TRY(lk__check_dtype(op, "dy", dy->dtype, LK_FLOATS));
    LK_TRY(conv_block_shapes(op, x->shape, w->shape, attrs, &conv, &y));
    LK_TRY(lk__check_like(op, "dy", dy, dy->dtype, y));
    LK_TRY(lk__check_like(op, "saved", saved, LK_U8, conv));
    LK_TRY(lk__check_like(op, "x", x, dy->dtype, x->shape));
    LK_TRY(lk__check_like(op, "w", w, dy->dtype, w->shape));
    lk_dtype dtype = lk__result_dtype(dy->dtype, attrs->f32);
    out[n++] = (lk_meta){dtype, w->shape};
    if (attrs->bias)
        out[n++] = (lk_meta){dtype, LK_SHAPE(w->shape.dim[0])};
    if (attrs->input_grad)
        out[n++] = (lk_meta){dy->dtype, x->shape};
    return LK_OK;
}

static double conv_block_grad_flops(const lk_call *call)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    const lk_tensor *dy = call->in[0], *saved = call->in[1], *w = call->in[3];
    return (attrs->input_grad ? 2 : 1) * lk__conv2d_flops(saved->shape, w->shape) +
           conv_block_tail_flops(attrs, saved, dy, true);
}

const lk_op lk__op_conv_block_grad = {
    .name = "conv_block_grad",
    .id = LK_OP_CONV_BLOCK_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = conv_block_grad_infer,
    .flops = conv_block_grad_flops,
};

static lk_status conv_block_gradient(lk_gradient *g)
{
    const lk_call *forward = g->call;
    if (!g->dout[0] || !(g->need[0] || g->need[1] || g->need[2]))
        return LK_OK;
    lk_conv_block_attrs attrs = *LK_ATTRS(forward, lk_conv_block_attrs);
    attrs.bias = forward->in[2] && g->need[2];
    attrs.input_grad = g->need[0];
    attrs.f32 = g->f32[1];
    lk_call call = {.op = &lk__op_conv_block_grad,
                    .place = forward->place,
                    .n_in = 4,
                    .n_out = 1 + attrs.bias + attrs.input_grad,
                    .in = {g->dout[0], forward->out[1], forward->in[0], forward->in[1]}};
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    LK_TRY(lk__call(&call));
    g->din[1] = g->need[1] ? call.out[0] : NULL;
    if (attrs.bias)
        g->din[2] = call.out[1];
    if (attrs.input_grad)
        g->din[0] = call.out[1 + attrs.bias];
    return LK_OK;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status conv_block_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_tensor *x = call->in[0], *w = call->in[1], *bias = call->in[2];
    LK_TRY(lk__check_dtype(op, "x", x->dtype, LK_FLOATS));
    LK_TRY(lk__check_same_dtype(call));
    out[0].dtype = x->dtype;
    out[1].dtype = LK_U8;
    LK_TRY(
        conv_block_shapes(op, x->shape, w->shape, LK_ATTRS(call, lk_conv_block_attrs), &out[1].shape, &out[0].shape));
    return bias ? lk__check_like(op, "bias", bias, x->dtype, LK_SHAPE(w->shape.dim[0])) : LK_OK;
}

static double conv_block_flops(const lk_call *call)
{
    const lk_tensor *y = call->out[0], *saved = call->out[1];
    return lk__conv2d_flops(saved->shape, call->in[1]->shape) +
           conv_block_tail_flops(LK_ATTRS(call, lk_conv_block_attrs), saved, y, false);
}

const lk_op lk__op_conv_block = {
    .name = "conv_block",
    .id = LK_OP_CONV_BLOCK,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = conv_block_infer,
    .gradient = conv_block_gradient,
    .flops = conv_block_flops,
};

lk_tensor *lk__conv_block(lk_call_site at, lk_tensor *x, lk_tensor *w, lk_tensor *bias,
                          const lk_conv_block_attrs *attrs)
{
    if (!x || !w)
        return lk__missing_tensor("conv_block", x ? "w" : "x");
    lk_call call = {.op = &lk__op_conv_block, .place = at, .n_in = 3, .n_out = 2, .in = {x, w, bias}};
    lk__call_set_attrs(&call, attrs, sizeof *attrs);
    return lk__call_first(&call);
}
