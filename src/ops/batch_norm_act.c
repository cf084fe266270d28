/* Batch normalization, the sum with a residual, and relu as one operator: batch_norm_act, its gradient, and
 * batch_norm_inference_act. */
#include "ops/batch_norm.h"
#include "ops/support.h"

static lk_status batch_norm_act_check_residual(const lk_call *call, int input)
{
    const lk_tensor *x = call->in[0], *residual = call->in[input];
    return residual ? lk__check_like(call->op->name, "residual", residual, x->dtype, x->shape) : LK_OK;
}

static lk_status batch_norm_act_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_affine(call));
    LK_TRY(batch_norm_act_check_residual(call, 3));
    out[1] = lk__channel_sums_meta(call->in[0]);
    return lk__infer_same(call, out);
}

static lk_status batch_norm_inference_act_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_tensor *x = call->in[0];
    LK_TRY(lk__check_affine(call));
    LK_TRY(lk__check_meta(op, "mean", call->in[3], lk__channel_vector_meta(x)));
    LK_TRY(lk__check_meta(op, "variance", call->in[4], lk__channel_vector_meta(x)));
    LK_TRY(batch_norm_act_check_residual(call, 5));
    return lk__infer_same(call, out);
}

/* (dy, y, x, gamma, sums[, beta[, more]]) → dx, dgamma, dbeta, dresidual, sums of dx, sums of dresidual */
static lk_status batch_norm_act_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_tensor *x = call->in[2];
    LK_TRY(lk__check_channels(op, x));
    LK_TRY(lk__check_like(op, "dy", call->in[0], x->dtype, x->shape));
    if (call->in[1])
        LK_TRY(lk__check_like(op, "y", call->in[1], x->dtype, x->shape));
    LK_TRY(lk__check_meta(op, "gamma", call->in[3], lk__channel_vector_meta(x)));
    LK_TRY(lk__check_meta(op, "sums", call->in[4], lk__channel_sums_meta(x)));
    if (call->n_in > 5 && call->in[5])
        LK_TRY(lk__check_meta(op, "beta", call->in[5], lk__channel_vector_meta(x)));
    if (call->n_in == 7)
        LK_TRY(lk__check_like(op, "more", call->in[6], x->dtype, x->shape));
    if (call->n_out == 6 && !(call->n_in == 7 && call->in[5]))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: the sums of dresidual need beta and more", op);
    out[0] = out[3] = (lk_meta){x->dtype, x->shape};
    out[1] = out[2] = out[4] = out[5] = lk__channel_vector_meta(x);
    return LK_OK;
}

/* Batch normalization takes 7 for each element, relu and the sum with the residual 1 each. */
static double batch_norm_act_flops(const lk_call *call)
{
    return (call->in[3] ? 9 : 8) * lk__flops_input(call);
}

static double batch_norm_inference_act_flops(const lk_call *call)
{
    return (call->in[5] ? 6 : 5) * lk__flops_input(call);
}

static double batch_norm_act_grad_flops(const lk_call *call)
{
    return 10 * lk__flops_input(call);
}

const lk_op lk__op_batch_norm_act_grad = {
    .name = "batch_norm_act_grad",
    .id = LK_OP_BATCH_NORM_ACT_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_act_grad_infer,
    .flops = batch_norm_act_grad_flops,
};

static lk_status batch_norm_act_gradient(lk_gradient *g)
{
    const lk_call *forward = g->call;
    bool residual = forward->in[3] && g->need[3];
    if (g->dout[1])
        LK_FAIL(LK_ERR_ARGUMENT,
                "gradient: the sums that batch_norm_act, called at %s:%d, gave have none; those of lk_channel_sums do",
                forward->place.file, forward->place.line);
    if (LK_ATTRS(forward, lk_batch_norm_attrs)->residual_last)
        LK_FAIL(LK_ERR_UNSUPPORTED, "gradient: batch_norm_act with residual_last, which only programs make, has none");
    if (!g->dout[0])
        return LK_OK;
    lk_call call = {
        .op = &lk__op_batch_norm_act_grad,
        .place = forward->place,
        .n_in = forward->in[3] ? 5 : 6,
        .n_out = residual ? 4 : 3,
        .in = {g->dout[0], forward->out[0], forward->in[0], forward->in[1], forward->out[1], forward->in[2]},
    };
    lk_batch_norm_attrs attrs = *LK_ATTRS(forward, lk_batch_norm_attrs);
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    LK_TRY(lk__call(&call));
    for (int i = 0; i < call.n_out; i++)
        g->din[i] = call.out[i];
    return LK_OK;
}

const lk_op lk__op_batch_norm_act = {
    .name = "batch_norm_act",
    .id = LK_OP_BATCH_NORM_ACT,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_act_infer,
    .gradient = batch_norm_act_gradient,
    .flops = batch_norm_act_flops,
};

const lk_op lk__op_batch_norm_inference_act = {
    .name = "batch_norm_inference_act",
    .id = LK_OP_BATCH_NORM_INFERENCE_ACT,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_inference_act_infer,
    .flops = batch_norm_inference_act_flops,
};
