/* Cases of activations, dropout and batch normalization. */
#pragma once

#include "conformance_tensors.h"

/* --- activations -------------------------------------------------------------------------------------------------- */

typedef struct activation_parameters {
    lk_activation_attrs attrs;
    lk_shape shape;
    double range; /* x in [-range, range) */
} activation_parameters;

static inline lk_tensor *activation_of(lk_tensor *x, const lk_activation_attrs *attrs)
{
    switch (attrs->kind) {
    case LK_ACT_SIGMOID:
        return lk_sigmoid(x);
    case LK_ACT_TANH:
        return lk_tanh(x);
    case LK_ACT_LEAKY_RELU:
        return lk_leaky_relu(x, attrs->alpha);
    case LK_ACT_ELU:
        return lk_elu(x, attrs->alpha);
    case LK_ACT_SILU:
        return lk_silu(x);
    case LK_ACT_GELU:
        return lk_gelu(x);
    default:
        return lk_softplus(x);
    }
}

static inline void activation_scale(trial *t)
{
    t->scale = SCALE_ONE;
    t->terms = FUNCTION_TERMS;
}

static inline lk_tensor *activation_case(trial *t, const void *parameters)
{
    const activation_parameters *p = parameters;
    activation_scale(t);
    return activation_of(floats_between(t, p->shape, -p->range, p->range), &p->attrs);
}

static inline lk_tensor *activation_specials_case(trial *t, const void *parameters)
{
    const activation_parameters *p = parameters;
    activation_scale(t);
    return activation_of(specials(t, p->shape), &p->attrs);
}

/* y is rounded once before the gradient uses it. */
static inline lk_tensor *activation_grad_case(trial *t, const void *parameters)
{
    const activation_parameters *p = parameters;
    activation_scale(t);
    t->roundings = 2;
    lk_tensor *dy = floats(t, p->shape);
    lk_tensor *x = floats_between(t, p->shape, -p->range, p->range);
    lk_tensor *in[] = {dy, x, activation_of(x, &p->attrs)};
    return call_op(&lk__op_activation_grad, in, 3, 1, &p->attrs, sizeof p->attrs, NULL);
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

typedef struct dropout_parameters {
    lk_shape shape;
    double rate;
} dropout_parameters;

static inline lk_tensor *dropped(trial *t, lk_tensor *x, double rate)
{
    lk_tensor *indices = integers(t, LK_I64, LK_SHAPE(lk_tensor_shape(x).dim[0]), 0, 60000);
    return lk_dropout(x, indices, rate, case_key);
}

static inline lk_tensor *dropout_case(trial *t, const void *parameters)
{
    const dropout_parameters *p = parameters;
    return dropped(t, floats(t, p->shape), p->rate);
}

static inline lk_tensor *dropout_specials_case(trial *t, const void *parameters)
{
    const dropout_parameters *p = parameters;
    return dropped(t, specials(t, p->shape), p->rate);
}

/* x has the layout of a convolution's result; elements are counted in the logical order nevertheless. */
static inline lk_tensor *dropout_conv_case(trial *t, const void *parameters)
{
    const dropout_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    t->scale = SCALE_ABSOLUTE;
    t->terms = 9 * channels;
    t->roundings = 2;
    lk_tensor *x = floats(t, p->shape);
    lk_tensor *w = floats(t, LK_SHAPE(channels, channels, 3, 3));
    return dropped(t, lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {1, 1}}), p->rate);
}

/* --- batch normalization ------------------------------------------------------------------------------------------ */

typedef struct norm_parameters {
    lk_shape shape;
    double epsilon;
    double offset; /* x in [offset - 1, offset + 1) */
} norm_parameters;

static inline int64_t channel_elements(lk_shape x)
{
    return x.dim[1] ? count_of(x) / x.dim[1] : 0;
}

/* Errors of x are divided by the deviation, which is about half, or the root of epsilon if all elements of a channel
 * may be equal. */
static inline void norm_scale(trial *t, const norm_parameters *p)
{
    bool flat = t->layout == EXPANDED || channel_elements(p->shape) == 1;
    t->scale = SCALE_ONE;
    t->terms = 32 + (int64_t)((4 + fabs(p->offset)) * (flat ? 4 / sqrt(p->epsilon) : 8));
}

static inline lk_tensor *norm_x(trial *t, const norm_parameters *p)
{
    return floats_between(t, p->shape, p->offset - 1, p->offset + 1);
}

/* A value for each channel, in the trial's dtype, or in f32 if that is bf16. */
static inline lk_tensor *channel_vector(trial *t, int64_t channels, double low, double high)
{
    lk_tensor *v = floats_between(t, LK_SHAPE(channels), low, high);
    return t->dtype == LK_BF16 ? lk_cast(v, LK_F32) : v;
}

/* Fixed multiples of 1/8 in [low, high), which no tape watches. */
static inline lk_tensor *channel_constants(trial *t, int64_t channels, double low, double high)
{
    lk_tensor *eighths = integers(t, LK_I32, LK_SHAPE(channels), 8 * low, 8 * high);
    return lk_mul_scalar(lk_cast(eighths, t->dtype == LK_BF16 ? LK_F32 : t->dtype), 0.125);
}

/* Sums and sums of squares, f64 [2, C], of `count` elements, with gaps. Means and mean squares are 0.4 to 0.5, so that
 * the variance is positive. */
static inline lk_tensor *given_sums(trial *t, int64_t channels, int64_t count)
{
    lk_tensor *sums = floats_between(t, LK_SHAPE(channels, 2), 0.4 * (double)count, 0.5 * (double)count);
    return lk_transpose(lk_cast(sums, LK_F64), 0, 1);
}

/* Integers whose sums and sums of squares are exact in f64, in any order, but not in f32. */
static inline lk_tensor *whole_numbers(trial *t, lk_shape shape)
{
    return lk_cast(integers(t, LK_I32, shape, -4096, 4096), t->dtype);
}

static inline lk_tensor *channel_sums_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    t->scale = SCALE_ABSOLUTE;
    return lk_channel_sums(norm_x(t, p));
}

static inline lk_tensor *channel_sums_whole_case(trial *t, const void *parameters)
{
    return lk_channel_sums(whole_numbers(t, ((const norm_parameters *)parameters)->shape));
}

static inline lk_tensor *channel_sums_grad_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    t->scale = SCALE_ABSOLUTE;
    t->terms = 4;
    lk_tensor *x = norm_x(t, p);
    lk_tensor *in[] = {x, given_sums(t, p->shape.dim[1], 1)};
    return call_op(&lk__op_channel_sums_grad, in, 2, 1, "", 0, NULL);
}

typedef struct norm_operands {
    lk_tensor *x, *gamma, *beta;
} norm_operands;

static inline norm_operands operands_of_norm(trial *t, const norm_parameters *p)
{
    norm_operands o;
    norm_scale(t, p);
    o.x = norm_x(t, p);
    o.gamma = channel_vector(t, p->shape.dim[1], 0.5, 1.5);
    o.beta = channel_vector(t, p->shape.dim[1], -1, 1);
    return o;
}

static inline lk_tensor *batch_norm_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    norm_operands o = operands_of_norm(t, p);
    return lk_batch_norm(o.x, o.gamma, o.beta, p->epsilon, NULL);
}

/* Returns the second result, the sums. */
static inline lk_tensor *batch_norm_sums_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    lk_tensor *x = whole_numbers(t, p->shape), *sums = NULL;
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5);
    lk_batch_norm(x, gamma, channel_vector(t, channels, -1, 1), p->epsilon, &sums);
    return sums;
}

/* Channel 0 holds infinities, NaN and the like, which must not change the other channels. */
static inline lk_tensor *batch_norm_specials_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    lk_shape first = p->shape;
    first.dim[1] = 1;
    norm_scale(t, p);
    lk_tensor *special = specials(t, first);
    lk_tensor *x = lk_concat((lk_tensor *[]){special, norm_x(t, p)}, 2, 1);
    lk_tensor *gamma = channel_vector(t, channels + 1, 0.5, 1.5);
    return lk_batch_norm(x, gamma, channel_vector(t, channels + 1, -1, 1), p->epsilon, NULL);
}

/* The number of elements per channel of a larger batch, of which a batch of this shape is a part. */
static inline int64_t count_with_others(lk_shape shape)
{
    return 3 * channel_elements(shape) + 5;
}

static inline lk_tensor *batch_norm_with_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1], count = count_with_others(p->shape);
    norm_operands o = operands_of_norm(t, p);
    return lk_batch_norm_with(o.x, o.gamma, o.beta, given_sums(t, channels, count), count, p->epsilon);
}

static inline lk_tensor *batch_norm_inference_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    norm_operands o = operands_of_norm(t, p);
    lk_tensor *mean = channel_constants(t, channels, -1, 1);
    return lk_batch_norm_inference(o.x, o.gamma, o.beta, mean, channel_constants(t, channels, 0.5, 2), p->epsilon);
}

/* The results of a call, concatenated; in f32 if x is bf16, because only dx is rounded to bf16. */
static inline lk_tensor *concatenated(const trial *t, const lk_call *call)
{
    lk_dtype dtype = t->dtype == LK_BF16 ? LK_F32 : t->dtype;
    lk_tensor *flat[LK_MAX_OUTPUTS];
    for (int i = 0; i < call->n_out; i++)
        flat[i] = lk_reshape(lk_cast(call->out[i], dtype), LK_SHAPE(-1));
    return lk_concat(flat, call->n_out, 0);
}

/* All results of a gradient. */
static inline lk_tensor *all_results(trial *t, const lk_op *op, lk_tensor *const *in, int n_in, int n_out,
                                     const void *attrs, size_t size)
{
    lk_call call = {.op = op, .place = LK_HERE, .n_in = n_in, .n_out = n_out};
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            return NULL;
        call.in[i] = in[i];
    }
    memcpy(call.attrs.bytes, attrs, size);
    return lk__call(&call) == LK_OK ? concatenated(t, &call) : NULL;
}

/* If x is bf16, dx is rounded once more than the others, so the f32 results get the tolerance of bf16. */
static inline void norm_grad_scale(trial *t, const norm_parameters *p)
{
    norm_scale(t, p);
    t->terms += 4 * channel_elements(p->shape);
    if (t->dtype == LK_BF16)
        t->terms += 1 << 16; /* 2^-8 in units of 2^-24 */
}

/* Each addend of a sum of dx is rounded to bf16. */
static inline void norm_grad_sums_scale(trial *t, const norm_parameters *p)
{
    norm_grad_scale(t, p);
    if (t->dtype == LK_BF16)
        t->terms += (4 + channel_elements(p->shape)) << 16;
}

static inline lk_tensor *batch_norm_grad(trial *t, const norm_parameters *p, int n_out)
{
    if (n_out == 4)
        norm_grad_sums_scale(t, p);
    else
        norm_grad_scale(t, p);
    lk_tensor *dy = floats(t, p->shape);
    lk_tensor *x = norm_x(t, p);
    lk_tensor *in[] = {dy, x, channel_vector(t, p->shape.dim[1], 0.5, 1.5), lk_channel_sums(x)};
    lk_batch_norm_attrs attrs = {.count = channel_elements(p->shape), .epsilon = p->epsilon};
    return all_results(t, &lk__op_batch_norm_grad, in, 4, n_out, &attrs, sizeof attrs);
}

static inline lk_tensor *batch_norm_grad_case(trial *t, const void *parameters)
{
    return batch_norm_grad(t, parameters, 3);
}

static inline lk_tensor *batch_norm_grad_sums_case(trial *t, const void *parameters)
{
    return batch_norm_grad(t, parameters, 4);
}

static inline lk_tensor *batch_norm_with_grad_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    lk_batch_norm_attrs attrs = {.count = count_with_others(p->shape), .epsilon = p->epsilon};
    norm_grad_scale(t, p);
    lk_tensor *dy = floats(t, p->shape);
    lk_tensor *x = norm_x(t, p);
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5);
    lk_tensor *in[] = {dy, x, gamma, given_sums(t, channels, attrs.count)};
    return all_results(t, &lk__op_batch_norm_with_grad, in, 4, 4, &attrs, sizeof attrs);
}

static inline lk_tensor *batch_norm_inference_grad_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    norm_grad_scale(t, p);
    lk_tensor *dy = floats(t, p->shape);
    lk_tensor *x = norm_x(t, p);
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5);
    lk_tensor *mean = channel_constants(t, channels, -1, 1);
    lk_tensor *in[] = {dy, x, gamma, mean, channel_constants(t, channels, 0.5, 2)};
    lk_batch_norm_attrs attrs = {.epsilon = p->epsilon};
    return all_results(t, &lk__op_batch_norm_inference_grad, in, 5, 3, &attrs, sizeof attrs);
}

/* As in a residual network, layouts pass from operator to operator. The functions are smooth, for central differences.
 */
static inline lk_tensor *norm_block_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    lk_conv2d_opts same = {.padding = {1, 1}};
    t->scale = SCALE_ONE;
    t->terms = 2 * 9 * channels * 4;
    t->roundings = 8;
    lk_tensor *x = floats(t, p->shape), *y = x;
    for (int i = 0; i < 2; i++) {
        lk_tensor *w = floats(t, LK_SHAPE(channels, channels, 3, 3));
        lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5);
        y = lk_conv2d(y, w, NULL, &same);
        y = lk_silu(lk_batch_norm(y, gamma, channel_vector(t, channels, -1, 1), p->epsilon, NULL));
    }
    return lk_add(y, x);
}

/* Normalizes x with the sums over x and another batch. */
static inline lk_tensor *norm_of_two_case(trial *t, const void *parameters)
{
    const norm_parameters *p = parameters;
    int64_t channels = p->shape.dim[1];
    norm_scale(t, p);
    lk_tensor *x = norm_x(t, p);
    lk_tensor *sums = lk_add(lk_channel_sums(x), lk_channel_sums(norm_x(t, p)));
    lk_tensor *gamma = channel_vector(t, channels, 0.5, 1.5);
    lk_tensor *beta = channel_vector(t, channels, -1, 1);
    return lk_batch_norm_with(x, gamma, beta, sums, 2 * channel_elements(p->shape), p->epsilon);
}

typedef struct norm_update_parameters {
    int64_t channels, count;
    double momentum;
    double skip; /* negative: none */
} norm_update_parameters;

static inline lk_tensor *updated(trial *t, const norm_update_parameters *p, lk_tensor *before, lk_tensor *sums)
{
    t->scale = SCALE_ONE;
    t->terms = 2;
    lk_tensor *mean = lk_copy(before, t->device);
    lk_tensor *variance = lk_copy(floats_between(t, LK_SHAPE(p->channels), 0.1, 2), t->device);
    lk_tensor *skip = p->skip < 0 ? NULL : lk_full(t->device, LK_F32, LK_SCALAR, p->skip);
    if (lk_batch_norm_update(mean, variance, sums, p->count, p->momentum, skip) != LK_OK)
        return NULL;
    return lk_concat((lk_tensor *[]){mean, variance}, 2, 0);
}

static inline lk_tensor *batch_norm_update_case(trial *t, const void *parameters)
{
    const norm_update_parameters *p = parameters;
    return updated(t, p, floats(t, LK_SHAPE(p->channels)), given_sums(t, p->channels, p->count));
}

static inline lk_tensor *batch_norm_update_specials_case(trial *t, const void *parameters)
{
    const norm_update_parameters *p = parameters;
    return updated(t, p, floats(t, LK_SHAPE(p->channels)), lk_cast(specials(t, LK_SHAPE(2, p->channels)), LK_F64));
}

static inline lk_tensor *batch_norm_update_of_specials_case(trial *t, const void *parameters)
{
    const norm_update_parameters *p = parameters;
    return updated(t, p, specials(t, LK_SHAPE(p->channels)), given_sums(t, p->channels, p->count));
}
