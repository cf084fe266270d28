/* Cases of fused operators. */
#pragma once

#include "conformance_layers.h"

/* Makes a call. Inputs after the first n_required may be NULL. False if an operand or the call failed. */
static inline bool made(lk_call *call, const lk_op *op, int n_in, int n_required, int n_out, const void *attrs,
                        size_t size)
{
    call->op = op;
    call->place = LK_HERE;
    call->n_in = n_in;
    call->n_out = n_out;
    for (int i = 0; i < n_required; i++)
        if (!call->in[i])
            return false;
    memcpy(call->attrs.bytes, attrs, size);
    return lk__call(call) == LK_OK;
}

/* --- batch normalization, residual, relu -------------------------------------------------------------------------- */

/* Values of either sign that are larger than the other addend: sums stay away from the kink of relu, where the gradient
 * jumps. */
static inline lk_tensor *away_from_zero(trial *t, lk_shape shape)
{
    lk_tensor *bits = lk_cast(integers(t, LK_I32, shape, 0, 2), t->dtype);
    lk_tensor *signs = lk_add_scalar(lk_mul_scalar(bits, 2), -1), *size = floats_between(t, shape, 6, 8);
    return t->absolute ? size : lk_mul(size, signs);
}

static inline lk_tensor *norm_act_with(trial *t, const norm_parameters *p, lk_tensor *x, lk_tensor *residual,
                                       bool residual_last)
{
    int64_t channels = lk_tensor_shape(x).dim[1];
    lk_batch_norm_attrs attrs = {
        .count = channel_elements(lk_tensor_shape(x)), .epsilon = p->epsilon, .residual_last = residual_last};
    norm_scale(t, p);
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5), *beta = channel_vector(t, channels, -1, 1);
    lk_call call = {.in = {x, gamma, beta, residual}};
    return made(&call, &lk__op_batch_norm_act, 4, 3, 2, &attrs, sizeof attrs) ? call.out[0] : NULL;
}

static inline lk_tensor *norm_act(trial *t, const norm_parameters *p, lk_tensor *x, lk_tensor *residual)
{
    return norm_act_with(t, p, x, residual, false);
}

static inline lk_tensor *batch_norm_residual_last_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    lk_tensor *x = norm_x(t, p), *y = norm_act_with(t, p, x, floats(t, p->shape), true);
    t->roundings = 5; /* relu's result, of up to 3.5, is rounded too */
    return y;
}

static inline lk_tensor *batch_norm_act_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    lk_tensor *x = norm_x(t, p);
    return norm_act(t, p, x, away_from_zero(t, p->shape));
}

static inline lk_tensor *batch_norm_relu_case(trial *t, const void *parameters)
{
    return norm_act(t, parameters, norm_x(t, parameters), NULL);
}

/* Channel 0 and the residual hold infinities, NaN and the like. */
static inline lk_tensor *batch_norm_act_specials_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    lk_shape first = p->shape, all = p->shape;
    first.dim[1] = 1;
    all.dim[1]++;
    lk_tensor *special = specials(t, first);
    lk_tensor *x = lk_concat((lk_tensor *[]){special, norm_x(t, p)}, 2, 1);
    return norm_act(t, p, x, specials(t, all));
}

static inline lk_tensor *batch_norm_inference_act(trial *t, const norm_parameters *p, bool residual)
{
    int64_t channels = p->shape.dim[1];
    lk_batch_norm_attrs attrs = {.epsilon = p->epsilon};
    norm_scale(t, p);
    lk_tensor *x = norm_x(t, p);
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5), *beta = channel_vector(t, channels, -1, 1);
    lk_tensor *mean = channel_constants(t, channels, -1, 1), *variance = channel_constants(t, channels, 0.5, 2);
    lk_call call = {.in = {x, gamma, beta, mean, variance, residual ? floats(t, p->shape) : NULL}};
    return made(&call, &lk__op_batch_norm_inference_act, 6, 5, 1, &attrs, sizeof attrs) ? call.out[0] : NULL;
}

static inline lk_tensor *batch_norm_inference_act_case(trial *t, const void *parameters)
{
    return batch_norm_inference_act(t, parameters, true);
}

static inline lk_tensor *batch_norm_inference_relu_case(trial *t, const void *parameters)
{
    return batch_norm_inference_act(t, parameters, false);
}

static inline lk_tensor *norm_act_grad(trial *t, const norm_parameters *p, int n_out)
{
    norm_grad_scale(t, p);
    lk_tensor *dy = floats(t, p->shape), *y = floats(t, p->shape);
    lk_tensor *x = norm_x(t, p);
    lk_tensor *in[] = {dy, y, x, channel_vector(t, p->shape.dim[1], 0.5, 1.5), lk_channel_sums(x)};
    lk_batch_norm_attrs attrs = {.count = channel_elements(p->shape), .epsilon = p->epsilon};
    return all_results(t, &lk__op_batch_norm_act_grad, in, 5, n_out, &attrs, sizeof attrs);
}

static inline lk_tensor *batch_norm_act_grad_case(trial *t, const void *parameters)
{
    return norm_act_grad(t, parameters, 4);
}

static inline lk_tensor *batch_norm_relu_grad_case(trial *t, const void *parameters)
{
    return norm_act_grad(t, parameters, 3);
}

/* The gradient of relu(batch_norm(x)), whose y a kernel may compute again. */
static inline lk_tensor *batch_norm_relu_again_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    norm_grad_scale(t, p);
    lk_tensor *dy = floats(t, p->shape), *x = norm_x(t, p);
    lk_tensor *gamma = channel_vector(t, p->shape.dim[1], 0.5, 1.5), *beta = channel_vector(t, p->shape.dim[1], -1, 1);
    lk_batch_norm_attrs attrs = {.count = channel_elements(p->shape), .epsilon = p->epsilon};
    lk_call call = {.in = {x, gamma, beta, NULL}};
    if (!made(&call, &lk__op_batch_norm_act, 4, 3, 2, &attrs, sizeof attrs))
        return NULL;
    lk_tensor *in[] = {dy, call.out[0], x, gamma, call.out[1], beta};
    return all_results(t, &lk__op_batch_norm_act_grad, in, 6, 3, &attrs, sizeof attrs);
}

/* Such a gradient whose dy is a sum, without y, and with the sums of dx. */
static inline lk_tensor *batch_norm_relu_sum_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    norm_grad_sums_scale(t, p);
    lk_tensor *x = norm_x(t, p), *gamma = channel_vector(t, p->shape.dim[1], 0.5, 1.5);
    lk_tensor *beta = channel_vector(t, p->shape.dim[1], -1, 1);
    lk_batch_norm_attrs attrs = {.count = channel_elements(p->shape), .epsilon = p->epsilon};
    lk_call call = {.in = {floats(t, p->shape), floats(t, p->shape), x, gamma, lk_channel_sums(x), beta, NULL}};
    call.in[6] = call.in[1];
    call.in[1] = NULL;
    return made(&call, &lk__op_batch_norm_act_grad, 7, 1, 5, &attrs, sizeof attrs) ? concatenated(t, &call) : NULL;
}

/* The gradient of relu(batch_norm(x) + residual) whose dy is a sum, with the sums of dx. */
static inline lk_tensor *batch_norm_act_sum_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    norm_grad_sums_scale(t, p);
    lk_tensor *x = norm_x(t, p), *gamma = channel_vector(t, p->shape.dim[1], 0.5, 1.5);
    lk_batch_norm_attrs attrs = {.count = channel_elements(p->shape), .epsilon = p->epsilon};
    lk_call call = {
        .in = {floats(t, p->shape), floats(t, p->shape), x, gamma, lk_channel_sums(x), NULL, floats(t, p->shape)}};
    return made(&call, &lk__op_batch_norm_act_grad, 7, 5, 5, &attrs, sizeof attrs) ? concatenated(t, &call) : NULL;
}

/* The gradient of relu(batch_norm(x)), with a sum as dy, and the sums of dx and of dresidual. */
static inline lk_tensor *batch_norm_relu_two_sums_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    norm_grad_sums_scale(t, p);
    lk_tensor *dy = floats(t, p->shape), *more = floats(t, p->shape), *x = norm_x(t, p);
    lk_tensor *gamma = channel_vector(t, p->shape.dim[1], 0.5, 1.5), *beta = channel_vector(t, p->shape.dim[1], -1, 1);
    lk_batch_norm_attrs attrs = {.count = channel_elements(p->shape), .epsilon = p->epsilon};
    lk_call call = {.in = {dy, NULL, x, gamma, lk_channel_sums(x), beta, more}};
    return made(&call, &lk__op_batch_norm_act_grad, 7, 1, 6, &attrs, sizeof attrs) ? concatenated(t, &call) : NULL;
}

/* --- with max pooling --------------------------------------------------------------------------------------------- */

typedef struct norm_pool_parameters {
    norm_parameters norm;
    lk_pool2d_opts pool;
    bool more; /* a residual; in the gradient, a second addend of dy */
} norm_pool_parameters;

static inline lk_batch_norm_pool_attrs norm_pool_attrs(const norm_pool_parameters *p)
{
    return (lk_batch_norm_pool_attrs){
        {.count = channel_elements(p->norm.shape), .epsilon = p->norm.epsilon, .residual_last = 1}, p->pool};
}

static inline lk_tensor *batch_norm_pool_of(trial *t, const norm_pool_parameters *p, lk_tensor *x, lk_tensor *residual)
{
    int64_t channels = p->norm.shape.dim[1];
    lk_batch_norm_pool_attrs attrs = norm_pool_attrs(p);
    norm_scale(t, &p->norm);
    t->roundings = 5;
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5), *beta = channel_vector(t, channels, -1, 1);
    lk_call call = {.in = {x, gamma, beta, residual}};
    return made(&call, &lk__op_batch_norm_pool, 4, 3, 3, &attrs, sizeof attrs) ? call.out[0] : NULL;
}

static inline lk_tensor *batch_norm_pool_case(trial *t, const void *parameters)
{
    const norm_pool_parameters *p = parameters;
    lk_tensor *x = norm_x(t, &p->norm);
    return batch_norm_pool_of(t, p, x, p->more ? floats(t, p->norm.shape) : NULL);
}

static inline lk_tensor *batch_norm_pool_specials_case(trial *t, const void *parameters)
{
    const norm_pool_parameters *p = parameters;
    return batch_norm_pool_of(t, p, norm_x(t, &p->norm), specials(t, p->norm.shape));
}

static inline lk_tensor *batch_norm_pool_grad_case(trial *t, const void *parameters)
{
    const norm_pool_parameters *p = parameters;
    const norm_parameters *norm = &p->norm;
    lk_batch_norm_pool_attrs attrs = norm_pool_attrs(p);
    lk_shape pooled = norm->shape;
    for (int i = 0; i < 2; i++)
        pooled.dim[2 + i] = (pooled.dim[2 + i] - p->pool.kernel[i]) / p->pool.stride[i] + 1;
    norm_grad_sums_scale(t, norm);
    lk_tensor *where = integers(t, LK_U8, pooled, 0, (double)(p->pool.kernel[0] * p->pool.kernel[1]));
    lk_tensor *dy = floats(t, pooled), *more = p->more ? floats(t, pooled) : NULL, *x = norm_x(t, norm);
    lk_tensor *gamma = channel_vector(t, norm->shape.dim[1], 0.5, 1.5);
    lk_tensor *beta = channel_vector(t, norm->shape.dim[1], -1, 1);
    lk_call call = {.in = {dy, where, x, gamma, lk_channel_sums(x), beta, more}};
    return made(&call, &lk__op_batch_norm_pool_grad, 7, 6, 5, &attrs, sizeof attrs) ? concatenated(t, &call) : NULL;
}

static inline lk_tensor *batch_norm_drop(trial *t, const norm_parameters *p, bool gradient)
{
    if (gradient)
        norm_grad_sums_scale(t, p);
    else
        norm_scale(t, p);
    t->roundings = 8; /* relu's result is rounded, and then up to 1 / (1 - rate) as large */
    lk_tensor *dy = floats(t, p->shape), *x = norm_x(t, p), *gamma = channel_vector(t, p->shape.dim[1], 0.5, 1.5);
    lk_tensor *beta = channel_vector(t, p->shape.dim[1], -1, 1);
    lk_tensor *indices = integers(t, LK_I64, LK_SHAPE(p->shape.dim[0]), 0, 60000);
    lk_batch_norm_drop_attrs attrs = {{.count = channel_elements(p->shape), .epsilon = p->epsilon},
                                      {.rate = 0.4, .key = case_key}};
    lk_call call = {.in = {x, gamma, beta, indices}};
    if (!made(&call, &lk__op_batch_norm_drop, 4, 4, 3, &attrs, sizeof attrs) || !gradient)
        return call.out[0];
    lk_call back = {.in = {dy, call.out[2], x, gamma, call.out[1], beta, indices}};
    return made(&back, &lk__op_batch_norm_drop_grad, 7, 7, 4, &attrs, sizeof attrs) ? concatenated(t, &back) : NULL;
}

static inline lk_tensor *batch_norm_drop_case(trial *t, const void *parameters)
{
    return batch_norm_drop(t, parameters, false);
}

static inline lk_tensor *batch_norm_drop_grad_case(trial *t, const void *parameters)
{
    return batch_norm_drop(t, parameters, true);
}

/* --- dense layers ------------------------------------------------------------------------------------------------- */

static inline lk_tensor *dense_act(trial *t, const matmul_parameters *p, bool bias, bool relu)
{
    lk_dense_act_attrs attrs = {.relu = relu};
    t->scale = SCALE_ABSOLUTE;
    t->terms = p->k + 1;
    t->roundings = 2;
    lk_tensor *x = floats(t, LK_SHAPE(p->m, p->k)), *w = floats(t, LK_SHAPE(p->k, p->n));
    lk_call call = {.in = {x, w, bias ? away_from_zero(t, LK_SHAPE(p->n)) : NULL}};
    return made(&call, &lk__op_dense_act, 3, 2, 1, &attrs, sizeof attrs) ? call.out[0] : NULL;
}

static inline lk_tensor *dense_bias_relu_case(trial *t, const void *parameters)
{
    return dense_act(t, parameters, true, true);
}

static inline lk_tensor *dense_bias_case(trial *t, const void *parameters)
{
    return dense_act(t, parameters, true, false);
}

static inline lk_tensor *dense_relu_case(trial *t, const void *parameters)
{
    return dense_act(t, parameters, false, true);
}

static inline lk_tensor *dense_specials_case(trial *t, const void *parameters)
{
    const matmul_parameters *p = parameters;
    lk_dense_act_attrs attrs = {.relu = true};
    t->scale = SCALE_ONE;
    t->terms = 4 * p->k;
    t->roundings = 2;
    lk_tensor *x = floats(t, LK_SHAPE(p->m, p->k)), *w = floats(t, LK_SHAPE(p->k, p->n));
    lk_call call = {.in = {x, w, specials(t, LK_SHAPE(p->n))}};
    return made(&call, &lk__op_dense_act, 3, 3, 1, &attrs, sizeof attrs) ? call.out[0] : NULL;
}

/* --- softmax, cross-entropy, its gradient, hits ------------------------------------------------------------------- */

/* Loss, gradient and hits, concatenated; in f32 if the logits are bf16. */
static inline lk_tensor *cross_entropy_step(trial *t, const loss_parameters *p, double smoothing)
{
    lk_cross_entropy_step_attrs attrs = {.smoothing = smoothing, .k = p->k};
    lk_dtype dtype = t->dtype == LK_BF16 ? LK_F32 : t->dtype;
    lk_tensor *flat[3];
    softmax_scale(t, p->classes + p->n + (t->dtype == LK_BF16 ? 1 << 16 : 0)); /* 2^-8 in units of 2^-24 */
    lk_tensor *dloss = floats(t, LK_SCALAR);
    lk_tensor *logits = floats_between(t, LK_SHAPE(p->n, p->classes), -4, 4);
    lk_call call = {.in = {dloss, logits, integers(t, p->labels, LK_SHAPE(p->n), 0, (double)p->classes)}};
    if (!made(&call, &lk__op_cross_entropy_step, 3, 3, 3, &attrs, sizeof attrs))
        return NULL;
    for (int i = 0; i < 3; i++)
        flat[i] = lk_reshape(lk_cast(call.out[i], dtype), LK_SHAPE(-1));
    return lk_concat(flat, 3, 0);
}

static inline lk_tensor *cross_entropy_step_case(trial *t, const void *parameters)
{
    return cross_entropy_step(t, parameters, 0);
}

static inline lk_tensor *smoothed_step_case(trial *t, const void *parameters)
{
    return cross_entropy_step(t, parameters, 0.1);
}
