/* Group normalization and its gradient. With statistics of whole samples it is an affine function of each channel, on
 * the loops of channels.h and in the layout that it finds. With statistics of each pixel the loops are here, row-major,
 * where neighboring pixels of a channel fill a vector. All arithmetic is double. */
#include "base/avx2.h"
#include "base/bf16.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_channels.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

/* The operands of a call; pointers that it does not have are NULL. */
typedef struct operands {
    const void *dy, *x;
    const float *gamma, *beta;
    void *out; /* y or dx */
    float *dgamma, *dbeta;
    int64_t samples, channels, pixels;
    int64_t group_channels;
    double epsilon;
    bool bf16;
} operands;

static int64_t cpu_gn_pixels(const lk_tensor *x)
{
    int64_t pixels = 1;
    for (int i = 2; i < x->shape.ndim; i++)
        pixels *= x->shape.dim[i];
    return pixels;
}

/* A sample of one pixel is normalized as a whole either way. */
static bool cpu_gn_is_of_pixels(const lk_call *call)
{
    return LK_ATTRS(call, lk_group_norm_opts)->each_pixel && cpu_gn_pixels(call->out[0]) > 1;
}

static const void *cpu_gn_at(const operands *o, const void *data, int64_t element)
{
    return (const char *)data + element * (int64_t)(o->bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* --- whole samples ------------------------------------------------------------------------------------------------ */

static lk_channels cpu_gn_sample_shape(const lk_tensor *x, dnnl_format_tag_t tag)
{
    lk_tensor one = lk__tensor_alias(x);
    one.shape.dim[0] = 1;
    return lk__channels_of(&one, tag);
}

/* The memory for one sample. */
static lk_norm_frame cpu_gn_frame(const lk_call *call, float *scratch)
{
    const lk_tensor *out = call->out[0];
    return lk__norm_frame_of(cpu_gn_sample_shape(out, lk__tag_of(out)), scratch);
}

/* Elements of a sample, with padding. */
static int64_t cpu_gn_sample_size(const lk_norm_frame *f)
{
    return f->shape.planes * f->shape.pixels * f->shape.lanes;
}

/* Sets first = sum of x, second = sum of x z, over each channel of a sample. */
static void cpu_gn_sum_channels(lk_norm_frame *f, const void *x, const void *z)
{
    lk__channels_sums(&f->shape, x, z, f->tables[0], f->tables[1]);
    lk__channels_fold(&f->shape, f->tables[0], f->first);
    lk__channels_fold(&f->shape, f->tables[1], f->second);
}

/* Rounding may make the variance negative; then it is taken as 0. NaN stays NaN. */
static void cpu_gn_set_moments(lk_norm_frame *f, const operands *o, const void *x)
{
    double count = (double)(o->group_channels * o->pixels);
    cpu_gn_sum_channels(f, x, x);
    for (int64_t begin = 0; begin < o->channels; begin += o->group_channels) {
        double sum = 0, squares = 0;
        for (int64_t c = begin; c < begin + o->group_channels; c++) {
            sum += f->first[c];
            squares += f->second[c];
        }
        double mean = sum / count, variance = squares / count - mean * mean;
        for (int64_t c = begin; c < begin + o->group_channels; c++) {
            f->mean[c] = mean;
            f->inverse[c] = 1 / sqrt((variance < 0 ? 0 : variance) + o->epsilon);
        }
    }
}

static void cpu_gn_samples_forward(lk_norm_frame *f, const operands *o)
{
    int64_t size = cpu_gn_sample_size(f);
    for (int64_t n = 0; n < o->samples; n++) {
        const void *x = cpu_gn_at(o, o->x, n * size);
        cpu_gn_set_moments(f, o, x);
        for (int64_t c = 0; c < o->channels; c++) {
            f->a[c] = (double)o->gamma[c] * f->inverse[c];
            f->c[c] = (double)o->beta[c] - f->mean[c] * f->a[c];
        }
        lk__channels_spread(&f->shape, f->a, f->tables[0]);
        lk__channels_spread(&f->shape, f->c, f->tables[1]);
        lk__channels_affine(&f->shape, x, f->tables[0], f->tables[1], (void *)cpu_gn_at(o, o->out, n * size));
    }
}

/* Sets a, b and c so that a dy + b x + c = inverse (gamma dy - mean(gamma dy) - xhat mean(gamma dy xhat)), from first =
 * sum of dy and second = sum of dy xhat of each channel. */
static void cpu_gn_set_input_gradient(lk_norm_frame *f, const operands *o)
{
    double count = (double)(o->group_channels * o->pixels);
    for (int64_t begin = 0; begin < o->channels; begin += o->group_channels) {
        double sum = 0, product = 0;
        for (int64_t c = begin; c < begin + o->group_channels; c++) {
            sum += (double)o->gamma[c] * f->first[c];
            product += (double)o->gamma[c] * f->second[c];
        }
        for (int64_t c = begin; c < begin + o->group_channels; c++) {
            f->a[c] = (double)o->gamma[c] * f->inverse[c];
            f->b[c] = -f->inverse[c] * f->inverse[c] * product / count;
            f->c[c] = -f->inverse[c] * sum / count - f->b[c] * f->mean[c];
        }
    }
}

/* dgamma and dbeta, [channels], are summed over the samples. */
static void cpu_gn_samples_backward(lk_norm_frame *f, const operands *o, double *dgamma, double *dbeta)
{
    int64_t size = cpu_gn_sample_size(f);
    double *const *t = f->tables;
    for (int64_t n = 0; n < o->samples; n++) {
        const void *x = cpu_gn_at(o, o->x, n * size), *dy = cpu_gn_at(o, o->dy, n * size);
        cpu_gn_set_moments(f, o, x);
        cpu_gn_sum_channels(f, dy, x);
        for (int64_t c = 0; c < o->channels; c++) {
            f->second[c] = (f->second[c] - f->mean[c] * f->first[c]) * f->inverse[c];
            dgamma[c] += f->second[c];
            dbeta[c] += f->first[c];
        }
        cpu_gn_set_input_gradient(f, o);
        lk__channels_spread(&f->shape, f->a, t[0]);
        lk__channels_spread(&f->shape, f->b, t[1]);
        lk__channels_spread(&f->shape, f->c, t[2]);
        lk__channels_affine2(&f->shape, dy, x, t[0], t[1], t[2], (void *)cpu_gn_at(o, o->out, n * size));
    }
}

/* --- each pixel --------------------------------------------------------------------------------------------------- */

enum { PIXEL_ARRAYS = 4, LANES = 8 };

/* [pixels] each, of a group of a sample. The sums are later divided. */
typedef struct pixel_arrays {
    double *mean, *inverse, *sum, *product;
} pixel_arrays;

static pixel_arrays cpu_gn_pixel_arrays(const operands *o, float *scratch)
{
    double *first = (double *)(void *)scratch;
    return (pixel_arrays){first, first + o->pixels, first + 2 * o->pixels, first + 3 * o->pixels};
}

/* Finds the moments of each pixel over the channels of a group whose first element is `at`. */
LK_BODY void cpu_gn_pixel_moments(const operands *o, bool bf16, int64_t at, pixel_arrays a)
{
    double count = (double)o->group_channels;
    memset(a.mean, 0, (size_t)o->pixels * sizeof(double));
    memset(a.inverse, 0, (size_t)o->pixels * sizeof(double));
    for (int64_t c = 0; c < o->group_channels; c++, at += o->pixels)
        LK_ANY_ORDER
    for (int64_t p = 0; p < o->pixels; p++) {
        double x = (double)lk__element(o->x, at + p, bf16);
        a.mean[p] += x;
        a.inverse[p] += x * x;
    }
    for (int64_t p = 0; p < o->pixels; p++) {
        a.mean[p] /= count;
        double variance = a.inverse[p] / count - a.mean[p] * a.mean[p];
        a.inverse[p] = 1 / sqrt((variance < 0 ? 0 : variance) + o->epsilon);
    }
}

LK_BODY void cpu_gn_pixels_forward_body(const operands *o, bool bf16, pixel_arrays a)
{
    for (int64_t c = 0; c < o->samples * o->channels; c++) {
        int64_t at = c * o->pixels;
        if (c % o->group_channels == 0)
            cpu_gn_pixel_moments(o, bf16, at, a);
        double gamma = (double)o->gamma[c % o->channels], beta = (double)o->beta[c % o->channels];
        LK_ANY_ORDER
        for (int64_t p = 0; p < o->pixels; p++) {
            double xhat = ((double)lk__element(o->x, at + p, bf16) - a.mean[p]) * a.inverse[p];
            lk__element_set(o->out, at + p, (float)(gamma * xhat + beta), bf16);
        }
    }
}

/* Adds to a.sum and a.product a channel's gamma dy and gamma dy xhat, and to *dgamma and *dbeta its sums of dy xhat and
 * dy: pixel p goes to lane p % LANES, and then the lanes are added in order. */
LK_BODY void cpu_gn_pixels_sum_channel(const operands *o, bool bf16, int64_t at, double gamma, pixel_arrays a,
                                       double *dgamma, double *dbeta)
{
    double products[LANES] = {0}, sums[LANES] = {0};
    int64_t full = o->pixels - o->pixels % LANES;
    for (int64_t begin = 0; begin < o->pixels; begin += LANES) {
        int64_t n = begin < full ? LANES : o->pixels - full;
        LK_ANY_ORDER
        for (int64_t l = 0; l < n; l++) {
            int64_t p = begin + l;
            double dy = (double)lk__element(o->dy, at + p, bf16);
            double product = dy * (((double)lk__element(o->x, at + p, bf16) - a.mean[p]) * a.inverse[p]);
            a.sum[p] += gamma * dy;
            a.product[p] += gamma * product;
            sums[l] += dy;
            products[l] += product;
        }
    }
    for (int l = 0; l < LANES; l++) {
        *dgamma += products[l];
        *dbeta += sums[l];
    }
}

LK_BODY void cpu_gn_pixels_backward_body(const operands *o, bool bf16, pixel_arrays a, double *dgamma, double *dbeta)
{
    double count = (double)o->group_channels;
    for (int64_t first = 0; first < o->samples * o->channels; first += o->group_channels) {
        int64_t channel = first % o->channels;
        cpu_gn_pixel_moments(o, bf16, first * o->pixels, a);
        memset(a.sum, 0, (size_t)o->pixels * sizeof(double));
        memset(a.product, 0, (size_t)o->pixels * sizeof(double));
        for (int64_t c = 0; c < o->group_channels; c++)
            cpu_gn_pixels_sum_channel(o, bf16, (first + c) * o->pixels, (double)o->gamma[channel + c], a,
                                      &dgamma[channel + c], &dbeta[channel + c]);
        for (int64_t c = 0; c < o->group_channels; c++) {
            int64_t at = (first + c) * o->pixels;
            double gamma = (double)o->gamma[channel + c];
            LK_ANY_ORDER
            for (int64_t p = 0; p < o->pixels; p++) {
                double dy = (double)lk__element(o->dy, at + p, bf16);
                double xhat = ((double)lk__element(o->x, at + p, bf16) - a.mean[p]) * a.inverse[p];
                double dx = a.inverse[p] * (gamma * dy - a.sum[p] / count - xhat * (a.product[p] / count));
                lk__element_set(o->out, at + p, (float)dx, bf16);
            }
        }
    }
}

LK_AVX2 static void cpu_gn_pixels_forward_avx2(const operands *o, pixel_arrays a)
{
    if (o->bf16)
        cpu_gn_pixels_forward_body(o, true, a);
    else
        cpu_gn_pixels_forward_body(o, false, a);
}

static void cpu_gn_pixels_forward(const operands *o, float *scratch)
{
    pixel_arrays a = cpu_gn_pixel_arrays(o, scratch);
    if (lk__has_avx2())
        cpu_gn_pixels_forward_avx2(o, a);
    else
        cpu_gn_pixels_forward_body(o, o->bf16, a);
}

LK_AVX2 static void cpu_gn_pixels_backward_avx2(const operands *o, pixel_arrays a, double *dgamma, double *dbeta)
{
    if (o->bf16)
        cpu_gn_pixels_backward_body(o, true, a, dgamma, dbeta);
    else
        cpu_gn_pixels_backward_body(o, false, a, dgamma, dbeta);
}

static void cpu_gn_pixels_backward(const operands *o, float *scratch, double *dgamma, double *dbeta)
{
    pixel_arrays a = cpu_gn_pixel_arrays(o, scratch);
    if (lk__has_avx2())
        cpu_gn_pixels_backward_avx2(o, a, dgamma, dbeta);
    else
        cpu_gn_pixels_backward_body(o, o->bf16, a, dgamma, dbeta);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Returns the bytes of scratch memory before the sums of dgamma and dbeta over samples, f64 [channels] each. */
static size_t cpu_gn_bytes_before_sums(const lk_call *call, const lk_channels *shape)
{
    return cpu_gn_is_of_pixels(call) ? (size_t)(PIXEL_ARRAYS * shape->pixels) * sizeof(double)
                                     : lk__channel_memory_bytes(shape);
}

/* Activations are the first n inputs, in the layout that the last of these, x, has. */
static lk_status cpu_gn_prepare(const lk_call *call, lk_prepared *prepared, int n)
{
    const lk_tensor *x = call->in[n - 1];
    dnnl_format_tag_t tag = lk__own_tag(call, x);
    if (cpu_gn_is_of_pixels(call) || lk__lanes_of_tag(tag) > 0)
        tag = dnnl_nchw;
    lk__channels_describe(prepared, x, tag);
    lk_channels shape = cpu_gn_sample_shape(x, tag);
    prepared->scratch_bytes = cpu_gn_bytes_before_sums(call, &shape) + 2 * (size_t)shape.channels * sizeof(double);
    for (int i = 0; i < n; i++)
        LK_TRY(lk__layout_tagged(x->shape, LK_F32, tag, &prepared->layouts_in[i]));
    return lk__layout_tagged(x->shape, LK_F32, tag, &prepared->layouts_out[0]);
}

static lk_status cpu_gn_prepare_forward(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    return cpu_gn_prepare(call, prepared, 1);
}

static lk_status cpu_gn_prepare_backward(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    return cpu_gn_prepare(call, prepared, 2);
}

static operands cpu_gn_operands(const lk_call *call)
{
    const lk_group_norm_opts *opts = LK_ATTRS(call, lk_group_norm_opts);
    const lk_tensor *out = call->out[0];
    return (operands){.out = out->storage->data,
                      .samples = out->shape.dim[0],
                      .channels = out->shape.dim[1],
                      .pixels = cpu_gn_pixels(out),
                      .group_channels = out->shape.dim[1] / opts->groups,
                      .epsilon = opts->epsilon,
                      .bf16 = out->dtype == LK_BF16};
}

static void cpu_gn_compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f = cpu_gn_frame(call, scratch);
    operands o = cpu_gn_operands(call);
    o.x = in[0].data;
    o.gamma = in[1].data;
    o.beta = in[2].data;
    if (cpu_gn_is_of_pixels(call))
        cpu_gn_pixels_forward(&o, scratch);
    else
        cpu_gn_samples_forward(&f, &o);
}

static void cpu_gn_compute_backward(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_norm_frame f = cpu_gn_frame(call, scratch);
    operands o = cpu_gn_operands(call);
    double *dgamma = (double *)(void *)((char *)scratch + cpu_gn_bytes_before_sums(call, &f.shape));
    double *dbeta = dgamma + o.channels;
    o.dy = in[0].data;
    o.x = in[1].data;
    o.gamma = in[2].data;
    o.dgamma = call->out[1]->storage->data;
    o.dbeta = call->out[2]->storage->data;
    memset(dgamma, 0, 2 * (size_t)o.channels * sizeof(double));
    if (cpu_gn_is_of_pixels(call))
        cpu_gn_pixels_backward(&o, scratch, dgamma, dbeta);
    else
        cpu_gn_samples_backward(&f, &o, dgamma, dbeta);
    for (int64_t c = 0; c < o.channels; c++) {
        o.dgamma[c] = (float)dgamma[c];
        o.dbeta[c] = (float)dbeta[c];
    }
}

static lk_status cpu_gn_run(lk_call *call, lk_prepare_fn prepare, lk_own_fn compute)
{
    lk_key key;
    const lk_group_norm_opts *opts = LK_ATTRS(call, lk_group_norm_opts);
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__key_call(&key, call);
    lk__key_add(&key, (const int64_t[]){opts->groups, opts->each_pixel}, 2);
    return lk__own_run_tagged(call, &key, prepare, compute);
}

lk_status lk__cpu_group_norm(lk_call *call)
{
    return cpu_gn_run(call, cpu_gn_prepare_forward, cpu_gn_compute_forward);
}

lk_status lk__cpu_group_norm_grad(lk_call *call)
{
    return cpu_gn_run(call, cpu_gn_prepare_backward, cpu_gn_compute_backward);
}
