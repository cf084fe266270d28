#include "cpu/lanes/cpu_lanes.h"

#include "base/bf16.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/lanes/cpu_lanes_block.h"
#include "cpu/lanes/cpu_lanes_winograd.h"
#include "cpu/lanes/lanes.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>

/* Eight images fill only half a vector of sixteen lanes, but that is as fast as full vectors of eight. */
enum { LEAST_IMAGES = 8 };

const char *lk__cpu_lanes_name(void)
{
    const lk_lanes_kernels *lanes = lk__lanes(LK_F32);
    return lanes ? lanes->name : "lanes";
}

const char *lk__cpu_lanes_bf16_name(void)
{
    return lk__lanes(LK_BF16)->name;
}

lk_status lk__cpu_lanes_layout(lk_shape shape, lk_dtype dtype, const lk_layout **layout)
{
    dnnl_format_tag_t tag = lk__lanes(LK_F32)->lanes == 16 ? LK_WIDE_LANES_TAG : LK_LANES_TAG;
    LK_TRY(lk__layout_tagged(shape, LK_F32, tag, layout));
    if (dtype == LK_BF16)
        *layout = lk__layout_of_bf16(*layout);
    return LK_OK;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

size_t lk__cpu_lanes_wide_bytes(const lk_tensor *parameter)
{
    if (!parameter || parameter->dtype == LK_F32)
        return 0;
    return lk__aligned_bytes((size_t)lk_tensor_count(parameter) * sizeof(float));
}

const float *lk__cpu_lanes_widened(const lk_call *call, const lk_converted *in, int i, void *memory)
{
    if (!call->in[i] || call->in[i]->dtype == LK_F32)
        return in[i].data;
    lk__bf16_widen(in[i].data, memory, lk_tensor_count(call->in[i]));
    return memory;
}

float *lk__cpu_lanes_wide(const lk_tensor *parameter, void *memory)
{
    return parameter->dtype == LK_F32 ? parameter->storage->data : memory;
}

void lk__cpu_lanes_round(const lk_tensor *parameter, const float *wide)
{
    if (parameter->dtype == LK_BF16)
        lk__bf16_round(wide, parameter->storage->data, lk_tensor_count(parameter));
}

/* --- whether lanes.h runs a call ---------------------------------------------------------------------------------- */

bool lk__cpu_lanes_fill(int64_t images)
{
    return lk__lanes(LK_F32) && images >= LEAST_IMAGES;
}

bool lk__cpu_lanes_want(int64_t images, int64_t channels)
{
    return lk__cpu_lanes_fill(images) && channels % lk__lanes(LK_F32)->lanes != 0;
}

static bool cpu_lanes_has_plain_options(const lk_conv2d_opts *opts)
{
    for (int i = 0; i < 2; i++)
        if (opts->stride[i] != 1 || opts->dilation[i] != 1 || opts->padding[i] != 0)
            return false;
    return opts->groups == 1;
}

bool lk__cpu_lanes_take_conv(lk_shape x, const lk_conv2d_opts *opts)
{
    return cpu_lanes_has_plain_options(opts) && lk__cpu_lanes_fill(x.dim[0]);
}

bool lk__cpu_lanes_want_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts)
{
    return cpu_lanes_has_plain_options(opts) && lk__cpu_lanes_want(x.dim[0], x.dim[1]) &&
           lk__cpu_lanes_want(x.dim[0], w.dim[0]);
}

bool lk__cpu_lanes_want_pool(const lk_call *call)
{
    const lk_tensor *x = call->in[0];
    const lk_layout *layout = lk__layout_of_f32(x->storage->layout);
    return call->free_layout && (!layout || lk__lanes_of_tag(layout->tag) > 0) &&
           lk__cpu_lanes_want(x->shape.dim[0], x->shape.dim[1]);
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

/* Asks for the lane layout for the first `n_lanes` inputs and the first output. */
static lk_status lanes_prepare(const lk_call *call, lk_prepared *prepared, int n_lanes, size_t scratch_bytes)
{
    char in[2][64] = {"", ""};
    for (int i = 0; i < call->n_in && i < 2; i++)
        lk__shape_text(call->in[i]->shape, in[i], sizeof in[i]);
    snprintf(prepared->problem, sizeof prepared->problem, "%s %s%s", lk_dtype_name(call->dtype), in[0], in[1]);
    snprintf(prepared->implementation, sizeof prepared->implementation, "%s", lk__lanes(call->dtype)->name);
    prepared->scratch_bytes = scratch_bytes;
    for (int i = 0; i < n_lanes; i++)
        LK_TRY(lk__cpu_lanes_layout(call->in[i]->shape, call->dtype, &prepared->layouts_in[i]));
    return lk__cpu_lanes_layout(call->out[0]->shape, call->dtype, &prepared->layouts_out[0]);
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

static lk_lanes_conv lanes_conv_of(lk_shape x, lk_shape y, lk_shape w)
{
    return (lk_lanes_conv){.images = x.dim[0],
                           .in = {x.dim[2], x.dim[3], x.dim[1]},
                           .out = {y.dim[2], y.dim[3], y.dim[1]},
                           .kernel = {w.dim[2], w.dim[3]}};
}

static lk_lanes_conv lanes_forward_conv(const lk_call *call)
{
    return lanes_conv_of(call->in[0]->shape, call->out[0]->shape, call->in[1]->shape);
}

static lk_lanes_block cpu_lanes_winograd_block(const lk_call *call)
{
    lk_conv_problem problem;
    lk__conv_problem_of(call, &problem);
    return lk__cpu_lanes_block_of(&problem);
}

/* Returns the floats, in whole cache lines, that the scratch memory reserves for packed weights before the memory of
 * lanes_winograd.h. They are unused if the weights are kept between calls. */
static size_t cpu_lanes_winograd_packed_floats(const lk_lanes_block *block)
{
    return (lk__lanes_winograd()->packed_count(&block->conv) + 15) / 16 * 16;
}

static size_t cpu_lanes_winograd_scratch_bytes(const lk_call *call)
{
    lk_lanes_block block = cpu_lanes_winograd_block(call);
    return cpu_lanes_winograd_packed_floats(&block) * sizeof(float) + lk__lanes_winograd()->memory(&block);
}

/* The scratch memory of a direct convolution begins with packed weights, which are unused if they are kept between
 * calls. A bias follows, and the memory of the kernel. */
static size_t cpu_lanes_packed_bytes(const lk_call *call, const lk_lanes_conv *conv)
{
    return lk__aligned_bytes(lk__lanes(call->dtype)->packed_bytes(conv));
}

/* The gradient of the input is a convolution of dy, padded by the reach of the kernel so that all taps contribute. */
static lk_lanes_conv lanes_input_grad_conv(const lk_call *call)
{
    lk_lanes_conv conv = lanes_forward_conv(call);
    for (int i = 0; i < 2; i++)
        conv.padding[i] = conv.kernel[i] - 1;
    return conv;
}

static lk_status lanes_prepare_conv(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_lanes_conv conv =
        call->op->id == LK_OP_CONV2D_INPUT_GRAD ? lanes_input_grad_conv(call) : lanes_forward_conv(call);
    lk_lanes_block block = lk__lanes_block_of(&conv);
    bool in_points = lk__cpu_choice(call)->in_points;
    size_t packed = cpu_lanes_packed_bytes(call, &conv);
    size_t bias = call->n_in > 2 ? lk__cpu_lanes_wide_bytes(call->in[2]) : 0; /* an input's gradient has none */
    size_t memory = lk__lanes(call->dtype)->forward_bytes(&block);
    if (in_points)
        packed = lk__lanes_winograd()->packed_count(&conv) * sizeof(float);
    LK_TRY(
        lanes_prepare(call, prepared, 1, in_points ? cpu_lanes_winograd_scratch_bytes(call) : packed + bias + memory));
    prepared->weights = 1;
    prepared->packed_bytes = packed;
    lk__cpu_choice_describe(call, prepared);
    return LK_OK;
}

static lk_status lanes_run_conv(lk_call *call, lk_prepare_fn prepare_fn, lk_own_fn compute)
{
    lk_key key;
    lk__key_call(&key, call);
    lk__key_add(&key, (int64_t[]){lk__cpu_choice(call)->in_points}, 1);
    return lk__own_run(call, &key, prepare_fn, compute);
}

static void lanes_compute_conv(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_lanes_conv conv = lanes_forward_conv(call);
    void *y = call->out[0]->storage->data;
    lk_packed w = lk__own_packed(call, scratch);
    if (lk__cpu_choice(call)->in_points) {
        lk_lanes_block block = cpu_lanes_winograd_block(call);
        if (!w.is_made)
            lk__lanes_winograd()->pack(&conv, in[1].data, w.data);
        lk__lanes_winograd()->forward(&block, in[0].data, w.data, in[2].data, y, NULL,
                                      scratch + cpu_lanes_winograd_packed_floats(&block));
        return;
    }
    const lk_lanes_kernels *lanes = lk__lanes(call->dtype);
    char *memory = (char *)scratch + cpu_lanes_packed_bytes(call, &conv);
    const float *bias = lk__cpu_lanes_widened(call, in, 2, memory);
    if (!w.is_made)
        lanes->pack(&conv, in[1].data, false, w.data);
    lanes->conv2d(&conv, in[0].data, w.data, bias, y, memory + lk__cpu_lanes_wide_bytes(call->in[2]));
}

lk_status lk__cpu_lanes_conv2d(lk_call *call)
{
    return lanes_run_conv(call, lanes_prepare_conv, lanes_compute_conv);
}

static void lanes_compute_input_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_lanes_conv conv = lanes_input_grad_conv(call);
    void *dx = call->out[0]->storage->data;
    lk_packed w = lk__own_packed(call, scratch);
    if (lk__cpu_choice(call)->in_points) {
        lk_lanes_block block = cpu_lanes_winograd_block(call);
        lk_lanes_grad grad = {.dy = in[0].data, .packed = w.data, .dx = dx};
        if (!w.is_made)
            lk__lanes_winograd()->pack(&block.conv, in[1].data, w.data);
        lk__lanes_winograd()->grad(&block, &grad, scratch + cpu_lanes_winograd_packed_floats(&block));
        return;
    }
    const lk_lanes_kernels *lanes = lk__lanes(call->dtype);
    if (!w.is_made)
        lanes->pack(&conv, in[1].data, true, w.data);
    lanes->conv2d(&conv, in[0].data, w.data, NULL, dx, (char *)scratch + cpu_lanes_packed_bytes(call, &conv));
}

lk_status lk__cpu_lanes_conv2d_input_grad(lk_call *call)
{
    return lanes_run_conv(call, lanes_prepare_conv, lanes_compute_input_grad);
}

static lk_lanes_block cpu_lanes_weight_grad_block(const lk_call *call)
{
    lk_lanes_conv conv = lanes_conv_of(call->in[1]->shape, call->in[0]->shape, call->out[0]->shape);
    return lk__lanes_block_of(&conv);
}

static lk_status lanes_prepare_weight_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_lanes_block block = cpu_lanes_weight_grad_block(call);
    bool in_points = lk__cpu_choice(call)->in_points;
    size_t bytes = in_points ? lk__lanes_winograd()->memory(&block) : lk__lanes(call->dtype)->grad_bytes(&block, false);
    for (int i = 0; i < call->n_out; i++)
        bytes += lk__cpu_lanes_wide_bytes(call->out[i]);
    LK_TRY(lanes_prepare(call, prepared, 2, bytes));
    lk__cpu_choice_describe(call, prepared);
    prepared->layouts_out[0] = NULL; /* gradients of parameters are plain */
    return LK_OK;
}

static void lanes_compute_weight_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_lanes_block block = cpu_lanes_weight_grad_block(call);
    lk_lanes_grad grad = {.dy = in[0].data, .x = in[1].data, .dw = call->out[0]->storage->data};
    if (lk__cpu_choice(call)->in_points)
        lk__lanes_winograd()->grad(&block, &grad, scratch);
    else
        lk__lanes(call->dtype)->grad(&block, &grad, scratch);
}

/* The gradient of the bias comes with that of the weights. */
static void cpu_lanes_compute_weight_grad_bf16(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_lanes_block block = cpu_lanes_weight_grad_block(call);
    lk_lanes_grad grad = {.dy = in[0].data, .x = in[1].data};
    char *memory = (char *)scratch;
    grad.dw = lk__cpu_lanes_wide(call->out[0], memory);
    memory += lk__cpu_lanes_wide_bytes(call->out[0]);
    if (call->n_out > 1) {
        grad.dbias = lk__cpu_lanes_wide(call->out[1], memory);
        memory += lk__cpu_lanes_wide_bytes(call->out[1]);
    }
    lk__lanes(LK_BF16)->grad(&block, &grad, memory);
    lk__cpu_lanes_round(call->out[0], grad.dw);
    if (call->n_out > 1)
        lk__cpu_lanes_round(call->out[1], grad.dbias);
}

lk_status lk__cpu_lanes_conv2d_weight_grad(lk_call *call)
{
    if (call->dtype == LK_BF16)
        return lanes_run_conv(call, lanes_prepare_weight_grad, cpu_lanes_compute_weight_grad_bf16);
    LK_TRY(lanes_run_conv(call, lanes_prepare_weight_grad, lanes_compute_weight_grad));
    return call->n_out > 1 ? lk__cpu_bias_gradient(call) : LK_OK;
}

/* --- average pooling ---------------------------------------------------------------------------------------------- */

static lk_status lanes_prepare_pool(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    return lanes_prepare(call, prepared, 1, 0);
}

static void lanes_compute_pool(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    lk_geometry pool = lk__geometry_of_pool(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
    lk__lanes(call->dtype)->avg_pool(&pool, in[0].data, call->out[0]->storage->data);
}

static void lanes_compute_pool_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    lk_geometry pool = lk__geometry_of_pool(call->out[0]->shape, call->in[0]->shape, opts);
    lk__lanes(call->dtype)->avg_pool_grad(&pool, in[0].data, call->out[0]->storage->data);
}

/* Preparing chooses layouts only, so the key has the output's sizes but not the pooling's options. */
static lk_status lanes_run_pool(lk_call *call, lk_own_fn compute)
{
    lk_key key;
    lk__key_call(&key, call);
    lk__key_add(&key, call->out[0]->shape.dim, 4);
    return lk__own_run(call, &key, lanes_prepare_pool, compute);
}

lk_status lk__cpu_lanes_avg_pool2d(lk_call *call)
{
    return lanes_run_pool(call, lanes_compute_pool);
}

lk_status lk__cpu_lanes_avg_pool2d_grad(lk_call *call)
{
    return lanes_run_pool(call, lanes_compute_pool_grad);
}
