/* Batch normalization, with or without the residual and the relu that follow, its gradients, and sums over channels, on
 * the loops of channels.h. Each is a sum over a channel, then an affine function of x and dy with constants for each
 * channel, so it reads memory once or twice and keeps the layout that it finds. */
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_channels.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "ops/ops.h"

#include <math.h>

static lk_norm_frame cpu_norm_frame(const lk_tensor *x, float *scratch)
{
    return lk__norm_frame_of(lk__channels_of(x, lk__tag_of(x)), scratch);
}

/* --- statistics --------------------------------------------------------------------------------------------------- */

/* Returns element (row, c) of sums: f64 [2, C] with any strides. */
static double cpu_norm_sum_at(const lk_tensor *sums, int row, int64_t c)
{
    return ((const double *)lk__data(sums))[row * sums->strides[0] + c * sums->strides[1]];
}

static void cpu_norm_set_moments(lk_norm_frame *f, int64_t c, double mean, double variance, double epsilon)
{
    f->mean[c] = mean;
    f->inverse[c] = 1 / sqrt(variance + epsilon);
}

/* Rounding may make the variance negative; then it is taken as 0. NaN stays NaN. */
static void cpu_norm_set_moments_of_sums(lk_norm_frame *f, const lk_call *call, const lk_tensor *sums)
{
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    for (int64_t c = 0; c < f->shape.channels; c++) {
        double mean = cpu_norm_sum_at(sums, 0, c) / (double)attrs->count;
        double variance = cpu_norm_sum_at(sums, 1, c) / (double)attrs->count - mean * mean;
        cpu_norm_set_moments(f, c, mean, variance < 0 ? 0 : variance, attrs->epsilon);
    }
}

static void cpu_norm_set_given_moments(lk_norm_frame *f, const lk_call *call, const float *mean, const float *variance)
{
    double epsilon = LK_ATTRS(call, lk_batch_norm_attrs)->epsilon;
    for (int64_t c = 0; c < f->shape.channels; c++)
        cpu_norm_set_moments(f, c, (double)mean[c], (double)variance[c], epsilon);
}

/* --- affine functions --------------------------------------------------------------------------------------------- */

/* y = a x + c */
static void cpu_norm_apply_affine(lk_norm_frame *f, const void *x, void *y)
{
    lk__channels_spread(&f->shape, f->a, f->tables[0]);
    lk__channels_spread(&f->shape, f->c, f->tables[1]);
    lk__channels_affine(&f->shape, x, f->tables[0], f->tables[1], y);
}

/* y = relu(a x + c + residual); residual may be NULL. */
static void cpu_norm_apply_relu(lk_norm_frame *f, const void *x, const void *residual, void *y)
{
    lk__channels_spread(&f->shape, f->a, f->tables[0]);
    lk__channels_spread(&f->shape, f->c, f->tables[1]);
    lk__channels_affine_relu(&f->shape, x, residual, f->tables[0], f->tables[1], y);
}

static void cpu_norm_spread_three(lk_norm_frame *f)
{
    lk__channels_spread(&f->shape, f->a, f->tables[0]);
    lk__channels_spread(&f->shape, f->b, f->tables[1]);
    lk__channels_spread(&f->shape, f->c, f->tables[2]);
}

/* Sets first and second to the sums over the tables' entries of each channel. */
static void cpu_norm_fold_sums(lk_norm_frame *f)
{
    lk__channels_fold(&f->shape, f->tables[0], f->first);
    lk__channels_fold(&f->shape, f->tables[1], f->second);
}

/* Sets first = sum of x, second = sum of x z, over each channel. */
static void cpu_norm_sum_channels(lk_norm_frame *f, const void *x, const void *z)
{
    lk__channels_sums(&f->shape, x, z, f->tables[0], f->tables[1]);
    cpu_norm_fold_sums(f);
}

/* Sets a and c so that a x + c = gamma (x - mean) inverse + beta. */
static void set_normalization(lk_norm_frame *f, const lk_converted *in)
{
    const float *gamma = in[1].data, *beta = in[2].data;
    for (int64_t c = 0; c < f->shape.channels; c++) {
        f->a[c] = (double)gamma[c] * f->inverse[c];
        f->c[c] = (double)beta[c] - f->mean[c] * f->a[c];
    }
}

static void normalize_channels(lk_norm_frame *f, const lk_call *call, const lk_converted *in)
{
    set_normalization(f, in);
    cpu_norm_apply_affine(f, in[0].data, call->out[0]->storage->data);
}

static void normalize_channels_act(lk_norm_frame *f, const lk_call *call, const lk_converted *in, const void *residual)
{
    set_normalization(f, in);
    cpu_norm_apply_relu(f, in[0].data, residual, call->out[0]->storage->data);
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

/* Asks for layout `tag` for the first n inputs, which are activations, and, if `output`, for the first output. */
static lk_status cpu_norm_prepare_in(const lk_call *call, lk_prepared *prepared, dnnl_format_tag_t tag, int n,
                                     bool output)
{
    lk_shape shape = call->in[0]->shape;
    lk__channels_describe(prepared, call->in[0], tag);
    for (int i = 0; i < n; i++)
        LK_TRY(lk__layout_tagged(shape, LK_F32, tag, &prepared->layouts_in[i]));
    return output ? lk__layout_tagged(shape, LK_F32, tag, &prepared->layouts_out[0]) : LK_OK;
}

static lk_status norm_prepare_sums(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    return cpu_norm_prepare_in(call, prepared, lk__tag_of(call->in[0]), 1, false);
}

static lk_status norm_prepare_forward(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    return cpu_norm_prepare_in(call, prepared, lk__own_tag(call, call->in[0]), 1, true);
}

/* dx goes to the operator that made x, so x's layout suits it best. */
static lk_status norm_prepare_backward(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    return cpu_norm_prepare_in(call, prepared, lk__own_tag(call, call->in[1]), 2, true);
}

/* The residual is the last input. */
static lk_status norm_prepare_act(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    int last = call->n_in - 1;
    LK_TRY(norm_prepare_forward(cpu, call, prepared));
    prepared->layouts_in[last] = call->in[last] ? prepared->layouts_in[0] : NULL;
    return LK_OK;
}

static lk_status norm_prepare_act_backward(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    LK_TRY(cpu_norm_prepare_in(call, prepared, lk__own_tag(call, call->in[2]), 3, true));
    if (call->n_out == 4)
        prepared->layouts_out[3] = prepared->layouts_out[0];
    return LK_OK;
}

static lk_status norm_run(lk_call *call, lk_prepare_fn prepare, lk_own_fn compute)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__key_call(&key, call);
    return lk__own_run_tagged(call, &key, prepare, compute);
}

/* --- channel_sums ------------------------------------------------------------------------------------------------- */

static void cpu_norm_store_channel_sums(const lk_norm_frame *f, lk_tensor *out)
{
    double *sums = out->storage->data;
    for (int64_t c = 0; c < f->shape.channels; c++) {
        sums[c] = f->first[c];
        sums[f->shape.channels + c] = f->second[c];
    }
}

static void cpu_norm_compute_channel_sums(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f = cpu_norm_frame(call->in[0], scratch);
    cpu_norm_sum_channels(&f, in[0].data, in[0].data);
    cpu_norm_store_channel_sums(&f, call->out[0]);
}

lk_status lk__cpu_channel_sums(lk_call *call)
{
    return norm_run(call, norm_prepare_sums, cpu_norm_compute_channel_sums);
}

static void cpu_norm_compute_channel_sums_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f;
    const lk_tensor *dx = call->out[0], *dsums = call->in[1];
    f = cpu_norm_frame(dx, scratch);
    for (int64_t c = 0; c < f.shape.channels; c++) {
        f.a[c] = 2 * cpu_norm_sum_at(dsums, 1, c);
        f.c[c] = cpu_norm_sum_at(dsums, 0, c);
    }
    cpu_norm_apply_affine(&f, in[0].data, dx->storage->data);
}

lk_status lk__cpu_channel_sums_grad(lk_call *call)
{
    return norm_run(call, norm_prepare_forward, cpu_norm_compute_channel_sums_grad);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* Sets the moments of x, and stores its sums in the second output. */
static void cpu_norm_own_moments(lk_norm_frame *f, lk_call *call, const lk_converted *in, float *scratch)
{
    *f = cpu_norm_frame(call->out[0], scratch);
    cpu_norm_sum_channels(f, in[0].data, in[0].data);
    cpu_norm_store_channel_sums(f, call->out[1]);
    cpu_norm_set_moments_of_sums(f, call, call->out[1]);
}

static void norm_compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f;
    cpu_norm_own_moments(&f, call, in, scratch);
    normalize_channels(&f, call, in);
}

lk_status lk__cpu_batch_norm(lk_call *call)
{
    return norm_run(call, norm_prepare_forward, norm_compute_forward);
}

static void norm_compute_with(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f = cpu_norm_frame(call->out[0], scratch);
    cpu_norm_set_moments_of_sums(&f, call, call->in[3]);
    normalize_channels(&f, call, in);
}

lk_status lk__cpu_batch_norm_with(lk_call *call)
{
    return norm_run(call, norm_prepare_forward, norm_compute_with);
}

static void norm_compute_inference(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f = cpu_norm_frame(call->out[0], scratch);
    cpu_norm_set_given_moments(&f, call, in[3].data, in[4].data);
    normalize_channels(&f, call, in);
}

lk_status lk__cpu_batch_norm_inference(lk_call *call)
{
    return norm_run(call, norm_prepare_forward, norm_compute_inference);
}

static void norm_compute_act(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f;
    cpu_norm_own_moments(&f, call, in, scratch);
    normalize_channels_act(&f, call, in, in[3].data);
}

bool lk__cpu_takes_batch_norm(const lk_call *call)
{
    switch (call->op->id) {
    case LK_OP_BATCH_NORM_ACT:
        return !LK_ATTRS(call, lk_batch_norm_attrs)->residual_last;
    case LK_OP_BATCH_NORM_ACT_GRAD:
        return call->in[1] && call->n_in < 7 && call->n_out < 5;
    default:
        return call->n_out < 4;
    }
}

lk_status lk__cpu_batch_norm_act(lk_call *call)
{
    return norm_run(call, norm_prepare_act, norm_compute_act);
}

static void norm_compute_inference_act(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f = cpu_norm_frame(call->out[0], scratch);
    cpu_norm_set_given_moments(&f, call, in[3].data, in[4].data);
    normalize_channels_act(&f, call, in, in[5].data);
}

lk_status lk__cpu_batch_norm_inference_act(lk_call *call)
{
    return norm_run(call, norm_prepare_act, norm_compute_inference_act);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* Stores dgamma = sum of dy (x - mean) inverse and dbeta = sum of dy, computed from the sums of dy and of dy x. They
 * stay in f->second and f->first too. */
static void cpu_norm_store_parameter_gradients(lk_norm_frame *f, const lk_call *call)
{
    float *dgamma = call->out[1]->storage->data, *dbeta = call->out[2]->storage->data;
    for (int64_t c = 0; c < f->shape.channels; c++) {
        f->second[c] = (f->second[c] - f->mean[c] * f->first[c]) * f->inverse[c];
        dgamma[c] = (float)f->second[c];
        dbeta[c] = (float)f->first[c];
    }
}

static void cpu_norm_parameter_gradients(lk_norm_frame *f, const lk_call *call, const lk_converted *in)
{
    cpu_norm_sum_channels(f, in[0].data, in[1].data);
    cpu_norm_store_parameter_gradients(f, call);
}

/* Sets a, b and c so that a dy + b x + c = gamma inverse (dy - dbeta / count - (x - mean) inverse dgamma / count). */
static void cpu_norm_set_input_gradient(lk_norm_frame *f, const lk_call *call, const float *gamma)
{
    double count = (double)LK_ATTRS(call, lk_batch_norm_attrs)->count;
    for (int64_t c = 0; c < f->shape.channels; c++) {
        f->a[c] = (double)gamma[c] * f->inverse[c];
        f->b[c] = -f->a[c] * f->inverse[c] * f->second[c] / count;
        f->c[c] = -f->a[c] * f->first[c] / count - f->b[c] * f->mean[c];
    }
    cpu_norm_spread_three(f);
}

static void norm_compute_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f;
    const void *dy = in[0].data, *x = in[1].data;
    f = cpu_norm_frame(call->out[0], scratch);
    cpu_norm_set_moments_of_sums(&f, call, call->in[3]);
    cpu_norm_parameter_gradients(&f, call, in);
    cpu_norm_set_input_gradient(&f, call, in[2].data);
    lk__channels_affine2(&f.shape, dy, x, f.tables[0], f.tables[1], f.tables[2], call->out[0]->storage->data);
}

lk_status lk__cpu_batch_norm_grad(lk_call *call)
{
    return norm_run(call, norm_prepare_backward, norm_compute_grad);
}

/* dy is taken as 0 unless y is above 0. That masked dy is the gradient of the residual: if there is one, it is written
 * along with the sums, and then read instead of dy and y. */
static void norm_compute_act_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f;
    const void *dy = in[0].data, *y = in[1].data, *x = in[2].data;
    void *dx = call->out[0]->storage->data, *dresidual = call->n_out == 4 ? call->out[3]->storage->data : NULL;
    f = cpu_norm_frame(call->out[0], scratch);
    double *const *t = f.tables;
    cpu_norm_set_moments_of_sums(&f, call, call->in[4]);
    lk__channels_sums_where(&f.shape, y, dy, x, t[0], t[1], dresidual);
    cpu_norm_fold_sums(&f);
    cpu_norm_store_parameter_gradients(&f, call);
    cpu_norm_set_input_gradient(&f, call, in[3].data);
    if (dresidual)
        lk__channels_affine2(&f.shape, dresidual, x, t[0], t[1], t[2], dx);
    else
        lk__channels_affine2_where(&f.shape, y, dy, x, t[0], t[1], t[2], dx);
}

lk_status lk__cpu_batch_norm_act_grad(lk_call *call)
{
    return norm_run(call, norm_prepare_act_backward, norm_compute_act_grad);
}

/* Computes dx = gamma inverse dy, for statistics that do not depend on x. */
static void cpu_norm_scale_by_gamma(lk_norm_frame *f, const lk_call *call, const lk_converted *in)
{
    const float *gamma = in[2].data;
    for (int64_t c = 0; c < f->shape.channels; c++) {
        f->a[c] = (double)gamma[c] * f->inverse[c];
        f->c[c] = 0;
    }
    cpu_norm_apply_affine(f, in[0].data, call->out[0]->storage->data);
}

/* With n = count, mean = s1 / n and variance = s2 / n - mean^2:
 *   dmean = -gamma inverse dbeta,  dvariance = -gamma inverse^2 dgamma / 2,
 *   ds1 = (dmean - 2 mean dvariance) / n,  ds2 = dvariance / n. */
static void norm_compute_with_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f;
    double count = (double)LK_ATTRS(call, lk_batch_norm_attrs)->count, *dsums = call->out[3]->storage->data;
    f = cpu_norm_frame(call->out[0], scratch);
    cpu_norm_set_moments_of_sums(&f, call, call->in[3]);
    cpu_norm_parameter_gradients(&f, call, in);
    cpu_norm_scale_by_gamma(&f, call, in);
    for (int64_t c = 0; c < f.shape.channels; c++) {
        double dvariance = -f.a[c] * f.inverse[c] * f.second[c] / 2;
        dsums[c] = (-f.a[c] * f.first[c] - 2 * f.mean[c] * dvariance) / count;
        dsums[f.shape.channels + c] = dvariance / count;
    }
}

lk_status lk__cpu_batch_norm_with_grad(lk_call *call)
{
    return norm_run(call, norm_prepare_backward, norm_compute_with_grad);
}

static void norm_compute_inference_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f = cpu_norm_frame(call->out[0], scratch);
    cpu_norm_set_given_moments(&f, call, in[3].data, in[4].data);
    cpu_norm_parameter_gradients(&f, call, in);
    cpu_norm_scale_by_gamma(&f, call, in);
}

lk_status lk__cpu_batch_norm_inference_grad(lk_call *call)
{
    return norm_run(call, norm_prepare_backward, norm_compute_inference_grad);
}
