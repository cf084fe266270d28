/* Batch normalization, relu and dropout as one operator, and its gradient. Programs make them. */
#include "ops/batch_norm.h"
#include "ops/support.h"

/* One byte for every 16 bytes of neighboring channels, or for each element if C is no multiple. */
static lk_meta batch_norm_drop_kept_meta(const lk_tensor *x)
{
    int64_t pack = 16 / (int64_t)lk_dtype_size(x->dtype);
    lk_meta kept = {LK_U8, x->shape};
    kept.shape.dim[1] /= x->shape.dim[1] % pack == 0 ? pack : 1;
    return kept;
}

static lk_status batch_norm_drop_check(const lk_call *call, const lk_tensor *x, const lk_tensor *indices)
{
    double rate = LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop.rate;
    LK_TRY(lk__check_like(call->op->name, "indices", indices, LK_I64, LK_SHAPE(x->shape.dim[0])));
    if (!(rate >= 0 && rate < 1))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: rate is %g; it must be at least 0 and less than 1", call->op->name, rate);
    return LK_OK;
}

static lk_status batch_norm_drop_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_affine(call));
    LK_TRY(batch_norm_drop_check(call, call->in[0], call->in[3]));
    out[1] = lk__channel_sums_meta(call->in[0]);
    out[2] = batch_norm_drop_kept_meta(call->in[0]);
    return lk__infer_same(call, out);
}

static lk_status batch_norm_drop_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_tensor *x = call->in[2];
    LK_TRY(lk__check_channels(op, x));
    LK_TRY(lk__check_like(op, "dy", call->in[0], x->dtype, x->shape));
    LK_TRY(lk__check_meta(op, "kept", call->in[1], batch_norm_drop_kept_meta(x)));
    LK_TRY(lk__check_meta(op, "gamma", call->in[3], lk__channel_vector_meta(x)));
    LK_TRY(lk__check_meta(op, "sums", call->in[4], lk__channel_sums_meta(x)));
    LK_TRY(lk__check_meta(op, "beta", call->in[5], lk__channel_vector_meta(x)));
    LK_TRY(batch_norm_drop_check(call, x, call->in[6]));
    out[0] = (lk_meta){x->dtype, x->shape};
    out[1] = out[2] = out[3] = lk__channel_vector_meta(x);
    return LK_OK;
}

/* Batch normalization takes 7 for each element, relu and dropout 1 each; the gradient 9, 1 and 1. */
static double batch_norm_drop_flops(const lk_call *call)
{
    return 9 * lk__flops_input(call);
}

static double batch_norm_drop_grad_flops(const lk_call *call)
{
    return 11 * lk__flops_input(call);
}

static void batch_norm_drop_set_step(lk_call *call, uint64_t step)
{
    ((lk_batch_norm_drop_attrs *)(void *)call->attrs.bytes)->drop.key.epoch = step;
}

const lk_op lk__op_batch_norm_drop = {
    .name = "batch_norm_drop",
    .id = LK_OP_BATCH_NORM_DROP,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_drop_infer,
    .flops = batch_norm_drop_flops,
    .set_step = batch_norm_drop_set_step,
};

const lk_op lk__op_batch_norm_drop_grad = {
    .name = "batch_norm_drop_grad",
    .id = LK_OP_BATCH_NORM_DROP_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_drop_grad_infer,
    .flops = batch_norm_drop_grad_flops,
    .set_step = batch_norm_drop_set_step,
};
