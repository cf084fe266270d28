/* softmax, log_softmax and their gradients. */
#include "ops/support.h"

static lk_status softmax_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_dtype(call->op->name, "x", call->in[0]->dtype, LK_FLOATS));
    return lk__infer_same(call, out);
}

static lk_status softmax_grad_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *dy = call->in[0];
    LK_TRY(lk__check_dtype(call->op->name, "dy", dy->dtype, LK_FLOATS));
    LK_TRY(lk__check_like(call->op->name, "y", call->in[1], dy->dtype, dy->shape));
    return lk__infer_same(call, out);
}

/* Maximum, subtract, exp, sum, divide: five for each element. */
static double softmax_flops(const lk_call *call)
{
    return 5 * lk__flops_output(call);
}

/* Multiply, sum, subtract, multiply: four for each element. */
static double softmax_grad_flops(const lk_call *call)
{
    return 4 * lk__flops_output(call);
}

const lk_op lk__op_softmax_grad = {
    .name = "softmax_grad",
    .id = LK_OP_SOFTMAX_GRAD,
    .infer = softmax_grad_infer,
    .flops = softmax_grad_flops,
};

const lk_op lk__op_log_softmax_grad = {
    .name = "log_softmax_grad",
    .id = LK_OP_LOG_SOFTMAX_GRAD,
    .infer = softmax_grad_infer,
    .flops = softmax_grad_flops,
};

static lk_status softmax_gradient_from_y(lk_gradient *g, const lk_op *op)
{
    return lk__gradient_call(g, op, (lk_tensor *[]){g->dout[0], g->call->out[0]}, 2);
}

static lk_status softmax_gradient(lk_gradient *g)
{
    return softmax_gradient_from_y(g, &lk__op_softmax_grad);
}

static lk_status log_softmax_gradient(lk_gradient *g)
{
    return softmax_gradient_from_y(g, &lk__op_log_softmax_grad);
}

const lk_op lk__op_softmax = {
    .name = "softmax",
    .id = LK_OP_SOFTMAX,
    .infer = softmax_infer,
    .gradient = softmax_gradient,
    .flops = softmax_flops,
};

const lk_op lk__op_log_softmax = {
    .name = "log_softmax",
    .id = LK_OP_LOG_SOFTMAX,
    .infer = softmax_infer,
    .gradient = log_softmax_gradient,
    .flops = softmax_flops,
};

lk_tensor *lk_softmax_at(lk_call_site at, lk_tensor *x, int axis)
{
    return lk__call_axis(at, &lk__op_softmax, x, axis);
}

lk_tensor *lk_log_softmax_at(lk_call_site at, lk_tensor *x, int axis)
{
    return lk__call_axis(at, &lk__op_log_softmax, x, axis);
}
