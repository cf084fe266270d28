/* Batch normalization, relu, the sum with a residual, and max pooling as one operator, and its gradient. Programs make
 * them. */
#include "ops/batch_norm.h"
#include "ops/pool2d.h"
#include "ops/support.h"

_Static_assert(sizeof(lk_batch_norm_pool_attrs) <= LK_MAX_ATTRS, "attributes of batch_norm_pool");

/* Sets *y to the shape of the pooling's result. */
static lk_status batch_norm_pool_check(const lk_call *call, const lk_tensor *x, lk_shape *y)
{
    const char *op = call->op->name;
    const lk_pool2d_opts *pool = &LK_ATTRS(call, lk_batch_norm_pool_attrs)->pool;
    LK_TRY(lk__pool2d_shape(op, x->shape, pool, y));
    return lk__pool2d_check_taps(op, pool);
}

/* (x, gamma, beta, residual) → y, sums, where */
static lk_status batch_norm_pool_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0], *residual = call->in[3];
    lk_shape y;
    LK_TRY(lk__check_affine(call));
    LK_TRY(batch_norm_pool_check(call, x, &y));
    if (residual)
        LK_TRY(lk__check_like(call->op->name, "residual", residual, x->dtype, x->shape));
    if (residual && !LK_ATTRS(call, lk_batch_norm_attrs)->residual_last)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: a residual must be added last", call->op->name);
    out[0] = (lk_meta){x->dtype, y};
    out[1] = lk__channel_sums_meta(x);
    out[2] = (lk_meta){LK_U8, y};
    return LK_OK;
}

/* (dy, where, x, gamma, sums, beta, more) → dx, dgamma, dbeta, dresidual, sums of dx */
static lk_status batch_norm_pool_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_tensor *x = call->in[2];
    lk_shape y;
    LK_TRY(lk__check_channels(op, x));
    LK_TRY(batch_norm_pool_check(call, x, &y));
    LK_TRY(lk__check_like(op, "dy", call->in[0], x->dtype, y));
    LK_TRY(lk__check_like(op, "where", call->in[1], LK_U8, y));
    LK_TRY(lk__check_meta(op, "gamma", call->in[3], lk__channel_vector_meta(x)));
    LK_TRY(lk__check_meta(op, "sums", call->in[4], lk__channel_sums_meta(x)));
    LK_TRY(lk__check_meta(op, "beta", call->in[5], lk__channel_vector_meta(x)));
    if (call->in[6])
        LK_TRY(lk__check_like(op, "more", call->in[6], x->dtype, y));
    out[0] = out[3] = (lk_meta){x->dtype, x->shape};
    out[1] = out[2] = out[4] = lk__channel_vector_meta(x);
    return LK_OK;
}

/* Batch normalization takes 7 for each element, relu, the sum with the residual and the maximum 1 each; the gradient 9
 * and 1 each. */
static double batch_norm_pool_flops(const lk_call *call)
{
    return (call->in[3] ? 10 : 9) * lk__flops_input(call);
}

static double batch_norm_pool_grad_flops(const lk_call *call)
{
    return 11 * (double)lk_tensor_count(call->in[2]);
}

const lk_op lk__op_batch_norm_pool = {
    .name = "batch_norm_pool",
    .id = LK_OP_BATCH_NORM_POOL,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_pool_infer,
    .flops = batch_norm_pool_flops,
};

const lk_op lk__op_batch_norm_pool_grad = {
    .name = "batch_norm_pool_grad",
    .id = LK_OP_BATCH_NORM_POOL_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_pool_grad_infer,
    .flops = batch_norm_pool_grad_flops,
};
