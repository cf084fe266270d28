/* conv2d and its two gradients. */
#include "ops/conv2d.h"
#include "ops/reduce.h"
#include "ops/support.h"

_Static_assert(sizeof(lk_conv2d_opts) <= LK_MAX_ATTRS, "attributes of conv2d");
_Static_assert(sizeof(lk_conv2d_grad_attrs) <= LK_MAX_ATTRS, "attributes of conv2d's gradients");

static lk_status conv2d_check_channels(const char *op, lk_shape x, lk_shape w, int64_t groups)
{
    int64_t taken;
    if (groups < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: groups is %lld; it must be at least 1", op, (long long)groups);
    if (!lk__mul_i64(w.dim[1], groups, &taken) || taken != x.dim[1])
        LK_FAIL(LK_ERR_SHAPE, "%s: x has %lld channels (shape %s) but w %s takes %lld x groups %lld", op,
                (long long)x.dim[1], lk__text(x).string, lk__text(w).string, (long long)w.dim[1], (long long)groups);
    if (w.dim[0] % groups != 0)
        LK_FAIL(LK_ERR_SHAPE, "%s: w %s makes %lld channels, which %lld groups do not divide", op, lk__text(w).string,
                (long long)w.dim[0], (long long)groups);
    return LK_OK;
}

lk_status lk__conv2d_shape(const char *op, lk_shape x, lk_shape w, const lk_conv2d_opts *opts, lk_shape *y)
{
    if (x.ndim != 4)
        LK_FAIL(LK_ERR_SHAPE, "%s: x has shape %s; it must be [N, C, H, W]", op, lk__text(x).string);
    if (w.ndim != 4)
        LK_FAIL(LK_ERR_SHAPE, "%s: w has shape %s; it must be [O, C / groups, KH, KW]", op, lk__text(w).string);
    for (int i = 0; i < 4; i++) {
        if ((i > 0 && x.dim[i] < 1) || w.dim[i] < 1)
            LK_FAIL(LK_ERR_SHAPE, "%s: x %s, w %s: no size but that of the batch may be 0", op, lk__text(x).string,
                    lk__text(w).string);
    }
    LK_TRY(conv2d_check_channels(op, x, w, opts->groups));
    *y = LK_SHAPE(x.dim[0], w.dim[0], 0, 0);
    for (int i = 0; i < 2; i++) {
        lk_window window = {w.dim[2 + i], opts->stride[i], opts->padding[i], opts->dilation[i]};
        LK_TRY(lk__window_count(op, i ? "W" : "H", x.dim[2 + i], window, &y->dim[2 + i]));
    }
    return LK_OK;
}

double lk__conv2d_flops(lk_shape y, lk_shape w)
{
    double outputs = (double)y.dim[0] * (double)y.dim[1] * (double)y.dim[2] * (double)y.dim[3];
    return 2 * outputs * (double)w.dim[1] * (double)w.dim[2] * (double)w.dim[3];
}

static lk_shape conv2d_grad_shape(const lk_conv2d_grad_attrs *attrs)
{
    return LK_SHAPE(attrs->size[0], attrs->size[1], attrs->size[2], attrs->size[3]);
}

static lk_conv2d_grad_attrs conv2d_grad_attrs(lk_shape size, const lk_conv2d_opts *conv, bool bias)
{
    lk_conv2d_grad_attrs attrs = {.conv = *conv, .bias = bias};
    for (int i = 0; i < 4; i++)
        attrs.size[i] = size.dim[i];
    return attrs;
}

/* --- dx ----------------------------------------------------------------------------------------------------------- */

static lk_status conv2d_input_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    const lk_tensor *dy = call->in[0], *w = call->in[1];
    lk_shape y;
    LK_TRY(lk__check_dtype(op, "dy", dy->dtype, LK_FLOATS));
    LK_TRY(lk__check_same_dtype(call));
    LK_TRY(lk__conv2d_shape(op, conv2d_grad_shape(attrs), w->shape, &attrs->conv, &y));
    LK_TRY(lk__check_like(op, "dy", dy, dy->dtype, y));
    out[0] = (lk_meta){dy->dtype, conv2d_grad_shape(attrs)};
    return LK_OK;
}

static double conv2d_input_grad_flops(const lk_call *call)
{
    return lk__conv2d_flops(call->in[0]->shape, call->in[1]->shape);
}

const lk_op lk__op_conv2d_input_grad = {
    .name = "conv2d_input_grad",
    .id = LK_OP_CONV2D_INPUT_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = conv2d_input_grad_infer,
    .flops = conv2d_input_grad_flops,
};

lk_tensor *lk__conv2d_input_grad(lk_call_site at, lk_tensor *dy, lk_tensor *w, lk_shape x, const lk_conv2d_opts *conv)
{
    lk_conv2d_grad_attrs attrs = conv2d_grad_attrs(x, conv, false);
    return lk__call_simple(at, &lk__op_conv2d_input_grad, (lk_tensor *[]){dy, w}, 2, 2, &attrs, sizeof attrs);
}

/* --- dw, dbias ---------------------------------------------------------------------------------------------------- */

static lk_status conv2d_weight_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    const lk_tensor *dy = call->in[0], *x = call->in[1];
    lk_shape y;
    LK_TRY(lk__check_dtype(op, "dy", dy->dtype, LK_FLOATS));
    LK_TRY(lk__check_same_dtype(call));
    LK_TRY(lk__conv2d_shape(op, x->shape, conv2d_grad_shape(attrs), &attrs->conv, &y));
    LK_TRY(lk__check_like(op, "dy", dy, dy->dtype, y));
    lk_dtype dtype = lk__result_dtype(dy->dtype, attrs->f32);
    out[0] = (lk_meta){dtype, conv2d_grad_shape(attrs)};
    if (attrs->bias)
        out[1] = (lk_meta){dtype, LK_SHAPE(attrs->size[0])};
    return LK_OK;
}

static double conv2d_weight_grad_flops(const lk_call *call)
{
    return lk__conv2d_flops(call->in[0]->shape, conv2d_grad_shape(LK_ATTRS(call, lk_conv2d_grad_attrs)));
}

const lk_op lk__op_conv2d_weight_grad = {
    .name = "conv2d_weight_grad",
    .id = LK_OP_CONV2D_WEIGHT_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = conv2d_weight_grad_infer,
    .flops = conv2d_weight_grad_flops,
};

lk_tensor *lk__conv2d_weight_grad(lk_call_site at, lk_tensor *dy, lk_tensor *x, lk_shape w, const lk_conv2d_opts *conv,
                                  bool f32, lk_tensor **dbias)
{
    if (dbias)
        *dbias = NULL;
    if (!dy || !x)
        return NULL;
    lk_call call = {.op = &lk__op_conv2d_weight_grad, .place = at, .n_in = 2, .n_out = dbias ? 2 : 1, .in = {dy, x}};
    lk_conv2d_grad_attrs attrs = conv2d_grad_attrs(w, conv, dbias != NULL);
    attrs.f32 = f32;
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    if (lk__call(&call) != LK_OK)
        return NULL;
    if (dbias)
        *dbias = call.out[1];
    return call.out[0];
}

/* --- conv2d ------------------------------------------------------------------------------------------------------- */

static lk_status conv2d_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0], *w = call->in[1], *bias = call->in[2];
    LK_TRY(lk__check_dtype("conv2d", "x", x->dtype, LK_FLOATS));
    LK_TRY(lk__check_same_dtype(call));
    out[0].dtype = x->dtype;
    LK_TRY(lk__conv2d_shape("conv2d", x->shape, w->shape, LK_ATTRS(call, lk_conv2d_opts), &out[0].shape));
    if (bias)
        LK_TRY(lk__check_like("conv2d", "bias", bias, x->dtype, LK_SHAPE(w->shape.dim[0])));
    return LK_OK;
}

static lk_status conv2d_gradient(lk_gradient *g)
{
    if (!g->dout[0])
        return LK_OK;
    lk_call_site at = g->call->place;
    lk_tensor *x = g->call->in[0], *w = g->call->in[1];
    const lk_conv2d_opts *opts = LK_ATTRS(g->call, lk_conv2d_opts);
    bool need_bias = g->call->in[2] && g->need[2];
    if (g->need[0]) {
        g->din[0] = lk__conv2d_input_grad(at, g->dout[0], w, x->shape, opts);
        LK_TRY(lk__made(g->din[0]));
    }
    if (g->need[1]) {
        lk_tensor **dbias = need_bias ? &g->din[2] : NULL;
        g->din[1] = lk__conv2d_weight_grad(at, g->dout[0], x, w->shape, opts, g->f32[1], dbias);
        return lk__made(g->din[1]);
    }
    if (!need_bias)
        return LK_OK;
    g->din[2] = lk__sum(at, g->dout[0], &(lk_reduce_opts){.n_axes = 3, .axes = {0, 2, 3}}, g->f32[2]);
    return lk__made(g->din[2]);
}

static double conv2d_flops(const lk_call *call)
{
    return lk__conv2d_flops(call->out[0]->shape, call->in[1]->shape);
}

const lk_op lk__op_conv2d = {
    .name = "conv2d",
    .id = LK_OP_CONV2D,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = conv2d_infer,
    .gradient = conv2d_gradient,
    .flops = conv2d_flops,
};

lk_tensor *lk_conv2d_at(lk_call_site at, lk_tensor *x, lk_tensor *w, lk_tensor *bias, const lk_conv2d_opts *opts)
{
    lk_conv2d_opts attrs = opts ? *opts : (lk_conv2d_opts){.groups = 1};
    for (int i = 0; i < 2; i++) {
        attrs.stride[i] = attrs.stride[i] ? attrs.stride[i] : 1;
        attrs.dilation[i] = attrs.dilation[i] ? attrs.dilation[i] : 1;
    }
    attrs.groups = attrs.groups ? attrs.groups : 1;
    return lk__call_simple(at, &lk__op_conv2d, (lk_tensor *[]){x, w, bias}, 3, 2, &attrs, sizeof attrs);
}
