/* sigmoid, tanh, leaky_relu, elu, silu, gelu, softplus: one operator of several kinds. */
#include "ops/support.h"

#include <math.h>

static const char *const names[] = {
    [LK_ACT_SIGMOID] = "sigmoid", [LK_ACT_TANH] = "tanh", [LK_ACT_LEAKY_RELU] = "leaky_relu", [LK_ACT_ELU] = "elu",
    [LK_ACT_SILU] = "silu",       [LK_ACT_GELU] = "gelu", [LK_ACT_SOFTPLUS] = "softplus",
};

static lk_status activation_infer(const lk_call *call, lk_meta *out)
{
    const lk_activation_attrs *attrs = LK_ATTRS(call, lk_activation_attrs);
    LK_TRY(lk__check_dtype(names[attrs->kind], "x", call->in[0]->dtype, LK_FLOATS));
    if (!isfinite(attrs->alpha))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: alpha is %g; it must be finite", names[attrs->kind], attrs->alpha);
    return lk__infer_same(call, out);
}

static lk_status activation_grad_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *dy = call->in[0];
    LK_TRY(lk__check_dtype("activation_grad", "dy", dy->dtype, LK_FLOATS));
    LK_TRY(lk__check_like("activation_grad", "x", call->in[1], dy->dtype, dy->shape));
    LK_TRY(lk__check_like("activation_grad", "y", call->in[2], dy->dtype, dy->shape));
    return lk__infer_same(call, out);
}

/* Exponential, add, divide, multiply: about four for each element. */
static double activation_flops(const lk_call *call)
{
    return 4 * lk__flops_output(call);
}

const lk_op lk__op_activation_grad = {
    .name = "activation_grad",
    .id = LK_OP_ACTIVATION_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = activation_grad_infer,
    .flops = activation_flops,
};

static lk_status activation_gradient(lk_gradient *g)
{
    return lk__gradient_call(g, &lk__op_activation_grad, (lk_tensor *[]){g->dout[0], g->call->in[0], g->call->out[0]},
                             3);
}

const lk_op lk__op_activation = {
    .name = "activation",
    .id = LK_OP_ACTIVATION,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = activation_infer,
    .gradient = activation_gradient,
    .flops = activation_flops,
};

static lk_tensor *activation_call(lk_call_site at, lk_tensor *x, lk_activation_kind kind, double alpha)
{
    lk_activation_attrs attrs = {.kind = kind, .alpha = alpha};
    if (!x)
        return lk__missing_tensor(names[kind], "x");
    return lk__call_simple(at, &lk__op_activation, &x, 1, 1, &attrs, sizeof attrs);
}

lk_tensor *lk_sigmoid_at(lk_call_site at, lk_tensor *x)
{
    return activation_call(at, x, LK_ACT_SIGMOID, 0);
}

lk_tensor *lk_tanh_at(lk_call_site at, lk_tensor *x)
{
    return activation_call(at, x, LK_ACT_TANH, 0);
}

lk_tensor *lk_leaky_relu_at(lk_call_site at, lk_tensor *x, double alpha)
{
    return activation_call(at, x, LK_ACT_LEAKY_RELU, alpha);
}

lk_tensor *lk_elu_at(lk_call_site at, lk_tensor *x, double alpha)
{
    return activation_call(at, x, LK_ACT_ELU, alpha);
}

lk_tensor *lk_silu_at(lk_call_site at, lk_tensor *x)
{
    return activation_call(at, x, LK_ACT_SILU, 0);
}

lk_tensor *lk_gelu_at(lk_call_site at, lk_tensor *x)
{
    return activation_call(at, x, LK_ACT_GELU, 0);
}

lk_tensor *lk_softplus_at(lk_call_site at, lk_tensor *x)
{
    return activation_call(at, x, LK_ACT_SOFTPLUS, 0);
}
