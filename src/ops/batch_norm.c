/* channel_sums, batch_norm, batch_norm_with, batch_norm_inference, their gradients, and batch_norm_update. */
#include "ops/batch_norm.h"
#include "ops/support.h"

#include <math.h>

/* --- checks ------------------------------------------------------------------------------------------------------- */

lk_status lk__check_channels(const char *op, const lk_tensor *x)
{
    LK_TRY(lk__check_dtype(op, "x", x->dtype, LK_FLOATS));
    if (x->shape.ndim < 2)
        LK_FAIL(LK_ERR_SHAPE, "%s: x has shape %s; it must be [N, C, …]", op, lk__text(x->shape).string);
    return LK_OK;
}

lk_meta lk__channel_vector_meta(const lk_tensor *x)
{
    return (lk_meta){lk__result_dtype(x->dtype, true), LK_SHAPE(x->shape.dim[1])};
}

lk_meta lk__channel_sums_meta(const lk_tensor *x)
{
    return (lk_meta){LK_F64, LK_SHAPE(2, x->shape.dim[1])};
}

lk_status lk__check_meta(const char *op, const char *operand, const lk_tensor *tensor, lk_meta meta)
{
    return lk__check_like(op, operand, tensor, meta.dtype, meta.shape);
}

static lk_status batch_norm_check_epsilon(const char *op, double epsilon)
{
    if (!(epsilon >= 0) || !isfinite(epsilon))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: epsilon is %g; it must be finite and at least 0", op, epsilon);
    return LK_OK;
}

lk_status lk__check_affine(const lk_call *call)
{
    const char *op = call->op->name;
    const lk_tensor *x = call->in[0];
    LK_TRY(lk__check_channels(op, x));
    LK_TRY(lk__check_meta(op, "gamma", call->in[1], lk__channel_vector_meta(x)));
    LK_TRY(lk__check_meta(op, "beta", call->in[2], lk__channel_vector_meta(x)));
    return batch_norm_check_epsilon(op, LK_ATTRS(call, lk_batch_norm_attrs)->epsilon);
}

static lk_status batch_norm_check_count(const char *op, int64_t count)
{
    if (count < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: count is %lld; it must be at least 1", op, (long long)count);
    return LK_OK;
}

/* The number of x's elements per channel. */
static int64_t batch_norm_channel_elements(const lk_tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->shape.ndim; i++)
        count *= i == 1 ? 1 : x->shape.dim[i];
    return count;
}

/* --- channel_sums ------------------------------------------------------------------------------------------------- */

static lk_status batch_norm_channel_sums_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_channels("channel_sums", call->in[0]));
    out[0] = lk__channel_sums_meta(call->in[0]);
    return LK_OK;
}

static lk_status batch_norm_channel_sums_grad_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0];
    LK_TRY(lk__check_channels("channel_sums_grad", x));
    LK_TRY(lk__check_meta("channel_sums_grad", "dsums", call->in[1], lk__channel_sums_meta(x)));
    return lk__infer_same(call, out);
}

static double batch_norm_channel_sums_flops(const lk_call *call)
{
    return 3 * lk__flops_input(call);
}

static double batch_norm_channel_sums_grad_flops(const lk_call *call)
{
    return 2 * lk__flops_input(call);
}

const lk_op lk__op_channel_sums_grad = {
    .name = "channel_sums_grad",
    .id = LK_OP_CHANNEL_SUMS_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_channel_sums_grad_infer,
    .flops = batch_norm_channel_sums_grad_flops,
};

static lk_status channel_sums_gradient(lk_gradient *g)
{
    return lk__gradient_call(g, &lk__op_channel_sums_grad, (lk_tensor *[]){g->call->in[0], g->dout[0]}, 2);
}

const lk_op lk__op_channel_sums = {
    .name = "channel_sums",
    .id = LK_OP_CHANNEL_SUMS,
    .infer = batch_norm_channel_sums_infer,
    .gradient = channel_sums_gradient,
    .flops = batch_norm_channel_sums_flops,
};

lk_tensor *lk_channel_sums_at(lk_call_site at, lk_tensor *x)
{
    return lk__call_simple(at, &lk__op_channel_sums, &x, 1, 1, NULL, 0);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* (dy, x, gamma, statistics …) → dx, dgamma, dbeta, …; the statistics are sums, or mean and variance. */
static lk_status batch_norm_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_tensor *dy = call->in[0], *x = call->in[1];
    LK_TRY(lk__check_channels(op, x));
    LK_TRY(lk__check_like(op, "dy", dy, x->dtype, x->shape));
    LK_TRY(lk__check_meta(op, "gamma", call->in[2], lk__channel_vector_meta(x)));
    if (call->n_in == 4)
        LK_TRY(lk__check_meta(op, "sums", call->in[3], lk__channel_sums_meta(x)));
    for (int i = 3; i < call->n_in && call->n_in == 5; i++)
        LK_TRY(lk__check_meta(op, i == 3 ? "mean" : "variance", call->in[i], lk__channel_vector_meta(x)));
    out[0] = (lk_meta){x->dtype, x->shape};
    out[1] = out[2] = lk__channel_vector_meta(x);
    if (call->n_out == 4)
        out[3] = call->op->id == LK_OP_BATCH_NORM_GRAD ? out[1] : lk__channel_sums_meta(x);
    return LK_OK;
}

static double batch_norm_grad_flops(const lk_call *call)
{
    return 9 * lk__flops_input(call);
}

static double batch_norm_affine_grad_flops(const lk_call *call)
{
    return 6 * lk__flops_input(call);
}

const lk_op lk__op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .id = LK_OP_BATCH_NORM_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_grad_infer,
    .flops = batch_norm_grad_flops,
};

const lk_op lk__op_batch_norm_with_grad = {
    .name = "batch_norm_with_grad",
    .id = LK_OP_BATCH_NORM_WITH_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_grad_infer,
    .flops = batch_norm_affine_grad_flops,
};

const lk_op lk__op_batch_norm_inference_grad = {
    .name = "batch_norm_inference_grad",
    .id = LK_OP_BATCH_NORM_INFERENCE_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_grad_infer,
    .flops = batch_norm_affine_grad_flops,
};

/* One call of `op` makes din[0 … n_out): they share their sums over a channel. */
static lk_status batch_norm_make_gradients(lk_gradient *g, const lk_op *op, lk_tensor *const *statistics,
                                           int n_statistics, int n_out)
{
    const lk_call *forward = g->call;
    lk_call call = {.op = op, .place = forward->place, .n_in = 3 + n_statistics, .n_out = n_out};
    lk_batch_norm_attrs attrs = *LK_ATTRS(forward, lk_batch_norm_attrs);
    call.in[0] = g->dout[0];
    call.in[1] = forward->in[0];
    call.in[2] = forward->in[1];
    for (int i = 0; i < n_statistics; i++)
        call.in[3 + i] = statistics[i];
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    LK_TRY(lk__call(&call));
    for (int i = 0; i < n_out; i++)
        g->din[i] = call.out[i];
    return LK_OK;
}

static lk_status batch_norm_gradient(lk_gradient *g)
{
    const lk_call *call = g->call;
    if (g->dout[1])
        LK_FAIL(LK_ERR_ARGUMENT,
                "gradient: the sums that batch_norm, called at %s:%d, gave have none; those of lk_channel_sums do",
                call->place.file, call->place.line);
    if (!g->dout[0])
        return LK_OK;
    return batch_norm_make_gradients(g, &lk__op_batch_norm_grad, &call->out[1], 1, 3);
}

static lk_status batch_norm_with_gradient(lk_gradient *g)
{
    return g->dout[0] ? batch_norm_make_gradients(g, &lk__op_batch_norm_with_grad, &g->call->in[3], 1, 4) : LK_OK;
}

static lk_status batch_norm_inference_gradient(lk_gradient *g)
{
    if (g->need[3] || g->need[4])
        LK_FAIL(LK_ERR_ARGUMENT, "gradient: batch_norm_inference, called at %s:%d, has none for mean and variance",
                g->call->place.file, g->call->place.line);
    return g->dout[0] ? batch_norm_make_gradients(g, &lk__op_batch_norm_inference_grad, &g->call->in[3], 2, 3) : LK_OK;
}

/* --- normalization ------------------------------------------------------------------------------------------------ */

static lk_status batch_norm_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_affine(call));
    out[1] = lk__channel_sums_meta(call->in[0]);
    return lk__infer_same(call, out);
}

static lk_status batch_norm_with_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_affine(call));
    LK_TRY(lk__check_meta("batch_norm_with", "sums", call->in[3], lk__channel_sums_meta(call->in[0])));
    LK_TRY(batch_norm_check_count("batch_norm_with", LK_ATTRS(call, lk_batch_norm_attrs)->count));
    return lk__infer_same(call, out);
}

static lk_status batch_norm_inference_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_affine(call));
    LK_TRY(lk__check_meta("batch_norm_inference", "mean", call->in[3], lk__channel_vector_meta(call->in[0])));
    LK_TRY(lk__check_meta("batch_norm_inference", "variance", call->in[4], lk__channel_vector_meta(call->in[0])));
    return lk__infer_same(call, out);
}

/* Three for the sums, and four as in batch_norm_affine_flops. */
static double batch_norm_flops(const lk_call *call)
{
    return 7 * lk__flops_input(call);
}

/* Subtract the mean, divide, multiply by gamma, add beta. */
static double batch_norm_affine_flops(const lk_call *call)
{
    return 4 * lk__flops_input(call);
}

const lk_op lk__op_batch_norm = {
    .name = "batch_norm",
    .id = LK_OP_BATCH_NORM,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_infer,
    .gradient = batch_norm_gradient,
    .flops = batch_norm_flops,
};

const lk_op lk__op_batch_norm_with = {
    .name = "batch_norm_with",
    .id = LK_OP_BATCH_NORM_WITH,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_with_infer,
    .gradient = batch_norm_with_gradient,
    .flops = batch_norm_affine_flops,
};

const lk_op lk__op_batch_norm_inference = {
    .name = "batch_norm_inference",
    .id = LK_OP_BATCH_NORM_INFERENCE,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = batch_norm_inference_infer,
    .gradient = batch_norm_inference_gradient,
    .flops = batch_norm_affine_flops,
};

lk_tensor *lk_batch_norm_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta, double epsilon,
                            lk_tensor **sums)
{
    if (sums)
        *sums = NULL;
    if (!x || !gamma || !beta)
        return lk__missing_tensor("batch_norm", !x ? "x" : !gamma ? "gamma" : "beta");
    lk_call call = {.op = &lk__op_batch_norm, .place = at, .n_in = 3, .n_out = 2, .in = {x, gamma, beta}};
    lk_batch_norm_attrs attrs = {.count = batch_norm_channel_elements(x), .epsilon = epsilon};
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    if (sums) {
        lk_status status = lk__call(&call);
        *sums = status == LK_OK ? call.out[1] : NULL;
        return status == LK_OK ? call.out[0] : NULL;
    }
    return lk__call_first(&call);
}

lk_tensor *lk_batch_norm_with_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta, lk_tensor *sums,
                                 int64_t count, double epsilon)
{
    lk_batch_norm_attrs attrs = {.count = count, .epsilon = epsilon};
    lk_tensor *in[] = {x, gamma, beta, sums};
    return lk__call_simple(at, &lk__op_batch_norm_with, in, 4, 4, &attrs, sizeof attrs);
}

lk_tensor *lk_batch_norm_inference_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta, lk_tensor *mean,
                                      lk_tensor *variance, double epsilon)
{
    lk_batch_norm_attrs attrs = {.epsilon = epsilon};
    lk_tensor *in[] = {x, gamma, beta, mean, variance};
    return lk__call_simple(at, &lk__op_batch_norm_inference, in, 5, 5, &attrs, sizeof attrs);
}

/* --- running statistics ------------------------------------------------------------------------------------------- */

static lk_status batch_norm_update_infer(const lk_call *call, lk_meta *out)
{
    const char *op = "batch_norm_update";
    const lk_tensor *mean = call->in[0];
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    LK_TRY(lk__check_dtype(op, "mean", mean->dtype, LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_F64)));
    LK_TRY(lk__check_ndim(op, "mean", mean, 1));
    LK_TRY(lk__check_like(op, "variance", call->in[1], mean->dtype, mean->shape));
    LK_TRY(lk__check_like(op, "sums", call->in[2], LK_F64, LK_SHAPE(2, mean->shape.dim[0])));
    if (call->n_in == 4)
        LK_TRY(lk__check_like(op, "skip", call->in[3], LK_F32, LK_SCALAR));
    LK_TRY(batch_norm_check_count(op, attrs->count));
    if (!(attrs->momentum >= 0 && attrs->momentum <= 1))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: momentum is %g; it must be between 0 and 1", op, attrs->momentum);
    out[0] = out[1] = (lk_meta){mean->dtype, mean->shape};
    return LK_OK;
}

static double batch_norm_update_flops(const lk_call *call)
{
    return 11 * lk__flops_input(call);
}

const lk_op lk__op_batch_norm_update = {
    .name = "batch_norm_update",
    .id = LK_OP_BATCH_NORM_UPDATE,
    .infer = batch_norm_update_infer,
    .flops = batch_norm_update_flops,
};

lk_status lk_batch_norm_update_at(lk_call_site at, lk_tensor *mean, lk_tensor *variance, lk_tensor *sums, int64_t count,
                                  double momentum, lk_tensor *skip)
{
    const char *op = "batch_norm_update";
    if (!mean || !variance || !sums)
        return lk__missing(op, !mean ? "mean" : !variance ? "variance" : "sums");
    LK_TRY(lk__check_writable(op, mean));
    LK_TRY(lk__check_writable(op, variance));
    lk_call call = {.op = &lk__op_batch_norm_update, .place = at, .n_in = skip ? 4 : 3, .n_out = 2};
    lk_batch_norm_attrs attrs = {.count = count, .momentum = momentum};
    call.in[0] = call.out[0] = mean;
    call.in[1] = call.out[1] = variance;
    call.in[2] = sums;
    call.in[3] = skip;
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    return lk__call_unrecorded(&call);
}
