#include "cpu/cpu_direct.h"

#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/avx2.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/cpu_state.h"
#include "cpu/direct_conv.h"
#include "ops/ops.h"

#include <stdio.h>

enum { BLOCK = 8 };

/* Offsets within a group of images, fewer than 512, are kept in 32 bits. */
static bool is_small(lk_shape x, int64_t filters, const lk_conv2d_opts *opts)
{
    double height = (double)x.dim[2] + 2 * (double)opts->padding[0];
    double width = (double)x.dim[3] + 2 * (double)opts->padding[1];
    double channels = (double)(x.dim[1] > filters ? x.dim[1] : filters);
    return 512 * height * width * channels <= INT32_MAX;
}

bool lk__cpu_direct_wants(lk_shape x, lk_shape w, const lk_conv2d_opts *opts)
{
    return opts->groups == 1 && x.dim[1] % BLOCK == 0 && w.dim[0] % BLOCK == 0 && is_small(x, w.dim[0], opts) &&
           lk__has_avx2() && !lk__dnnl_has_avx512();
}

static lk_direct_conv conv_of(lk_shape x, lk_shape w, lk_shape y, const lk_conv2d_opts *opts)
{
    lk_direct_conv conv = {.images = x.dim[0], .channels = x.dim[1], .filters = w.dim[0]};
    for (int i = 0; i < 2; i++) {
        conv.in[i] = x.dim[2 + i];
        conv.out[i] = y.dim[2 + i];
        conv.kernel[i] = w.dim[2 + i];
        conv.stride[i] = opts->stride[i];
        conv.padding[i] = opts->padding[i];
        conv.dilation[i] = opts->dilation[i];
    }
    return conv;
}

static lk_direct_conv forward_conv(const lk_call *call)
{
    const lk_conv2d_opts *opts = LK_ATTRS(call, lk_conv2d_opts);
    return conv_of(call->in[0]->shape, call->in[1]->shape, call->out[0]->shape, opts);
}

static lk_direct_conv input_grad_conv(const lk_call *call)
{
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    return conv_of(call->out[0]->shape, call->in[1]->shape, call->in[0]->shape, opts);
}

static lk_direct_conv weight_grad_conv(const lk_call *call)
{
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    return conv_of(call->in[1]->shape, call->out[0]->shape, call->in[0]->shape, opts);
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static lk_status in_blocks(const lk_tensor *x, const lk_layout **layout)
{
    return lk__layout_tagged(x->shape, LK_F32, dnnl_nChw8c, layout);
}

static void describe(lk_prepared *prepared, const lk_direct_conv *conv)
{
    snprintf(prepared->problem, sizeof prepared->problem,
             "f32 x[%lld,%lld,%lld,%lld] w[%lld,%lld,%lld,%lld] stride %lldx%lld padding %lldx%lld dilation %lldx%lld",
             (long long)conv->images, (long long)conv->channels, (long long)conv->in[0], (long long)conv->in[1],
             (long long)conv->filters, (long long)conv->channels, (long long)conv->kernel[0],
             (long long)conv->kernel[1], (long long)conv->stride[0], (long long)conv->stride[1],
             (long long)conv->padding[0], (long long)conv->padding[1], (long long)conv->dilation[0],
             (long long)conv->dilation[1]);
    snprintf(prepared->implementation, sizeof prepared->implementation, "direct:avx2");
    prepared->scratch_bytes = lk__direct_memory(conv);
}

/* x → y, or dy → dx. */
static lk_status prepare_image(const lk_call *call, const lk_direct_conv *conv, lk_prepared *prepared)
{
    describe(prepared, conv);
    LK_TRY(in_blocks(call->in[0], &prepared->layouts_in[0]));
    return in_blocks(call->out[0], &prepared->layouts_out[0]);
}

static lk_status prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_direct_conv conv = forward_conv(call);
    return prepare_image(call, &conv, prepared);
}

static lk_status prepare_input_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_direct_conv conv = input_grad_conv(call);
    return prepare_image(call, &conv, prepared);
}

/* Gradients of parameters are always plain. */
static lk_status prepare_weight_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_direct_conv conv = weight_grad_conv(call);
    describe(prepared, &conv);
    LK_TRY(in_blocks(call->in[0], &prepared->layouts_in[0]));
    return in_blocks(call->in[1], &prepared->layouts_in[1]);
}

static lk_status run(lk_call *call, const lk_conv2d_opts *opts, lk_prepare_fn prepare, lk_own_fn compute)
{
    lk_key key;
    lk__key_call(&key, call);
    lk__key_add(&key, opts->stride, 2);
    lk__key_add(&key, opts->padding, 2);
    lk__key_add(&key, opts->dilation, 2);
    for (int i = 0; i < call->n_out; i++)
        lk__key_add(&key, call->out[i]->shape.dim, call->out[i]->shape.ndim);
    return lk__own_run(call, &key, prepare, compute);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static void compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_direct_conv conv = forward_conv(call);
    lk__direct_conv2d(&conv, in[0].data, in[1].data, in[2].data, call->out[0]->storage->data, scratch);
}

lk_status lk__cpu_direct_conv2d(lk_call *call)
{
    return run(call, LK_ATTRS(call, lk_conv2d_opts), prepare_forward, compute_forward);
}

static void compute_input_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_direct_conv conv = input_grad_conv(call);
    lk__direct_input_grad(&conv, in[0].data, in[1].data, call->out[0]->storage->data, scratch);
}

lk_status lk__cpu_direct_conv2d_input_grad(lk_call *call)
{
    return run(call, &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, prepare_input_grad, compute_input_grad);
}

static void compute_weight_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_direct_conv conv = weight_grad_conv(call);
    lk__direct_weight_grad(&conv, in[0].data, in[1].data, lk__cpu_data(call->out[0]), scratch);
}

lk_status lk__cpu_direct_conv2d_weight_grad(lk_call *call)
{
    LK_TRY(run(call, &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, prepare_weight_grad, compute_weight_grad));
    return call->n_out > 1 ? lk__cpu_bias_gradient(call) : LK_OK;
}
