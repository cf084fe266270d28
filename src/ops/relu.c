#include "ops/support.h"

static lk_status relu_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_dtype("relu", "x", call->in[0]->dtype, LK_FLOATS));
    return lk__infer_same(call, out);
}

static lk_status relu_grad_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *dy = call->in[0];
    LK_TRY(lk__check_dtype("relu_grad", "dy", dy->dtype, LK_FLOATS));
    LK_TRY(lk__check_like("relu_grad", "y", call->in[1], dy->dtype, dy->shape));
    return lk__infer_same(call, out);
}

const lk_op lk__op_relu_grad = {
    .name = "relu_grad",
    .id = LK_OP_RELU_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = relu_grad_infer,
    .flops = lk__flops_output,
};

static lk_status relu_gradient(lk_gradient *g)
{
    return lk__gradient_call(g, &lk__op_relu_grad, (lk_tensor *[]){g->dout[0], g->call->out[0]}, 2);
}

const lk_op lk__op_relu = {
    .name = "relu",
    .id = LK_OP_RELU,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = relu_infer,
    .gradient = relu_gradient,
    .flops = lk__flops_output,
};

lk_tensor *lk_relu_at(lk_call_site at, lk_tensor *x)
{
    return lk__call_simple(at, &lk__op_relu, &x, 1, 1, NULL, 0);
}
