#include "cpu/cpu_block_conv.h"

#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/block_conv.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/cpu_state.h"
#include "cpu/isa.h"
#include "ops/ops.h"

#include <stdio.h>

/* Offsets within a group of images, fewer than 512, are kept in 32 bits. */
static bool is_small(lk_shape x, int64_t filters, const lk_conv2d_opts *opts)
{
    double height = (double)x.dim[2] + 2 * (double)opts->padding[0];
    double width = (double)x.dim[3] + 2 * (double)opts->padding[1];
    double channels = (double)(x.dim[1] > filters ? x.dim[1] : filters);
    return 512 * height * width * channels <= INT32_MAX;
}

bool lk__cpu_blocks_take_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts)
{
    const lk_isa *isa = lk__isa();
    return isa && opts->groups == 1 && x.dim[1] % isa->width == 0 && w.dim[0] % isa->width == 0 &&
           is_small(x, w.dim[0], opts);
}

lk_block_conv lk__cpu_block_conv_of(lk_shape x, lk_shape w, lk_shape y, const lk_conv2d_opts *opts)
{
    lk_block_conv conv = {.images = x.dim[0], .channels = x.dim[1], .filters = w.dim[0]};
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

static lk_block_conv forward_conv(const lk_call *call)
{
    const lk_conv2d_opts *opts = LK_ATTRS(call, lk_conv2d_opts);
    return lk__cpu_block_conv_of(call->in[0]->shape, call->in[1]->shape, call->out[0]->shape, opts);
}

static lk_block_conv input_grad_conv(const lk_call *call)
{
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    return lk__cpu_block_conv_of(call->out[0]->shape, call->in[1]->shape, call->in[0]->shape, opts);
}

static lk_block_conv weight_grad_conv(const lk_call *call)
{
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    return lk__cpu_block_conv_of(call->in[1]->shape, call->out[0]->shape, call->in[0]->shape, opts);
}

/* --- which algorithm ---------------------------------------------------------------------------------------------- */

/* Winograd's tiles have to be full enough, enough to outweigh the transformed kernels, and the channels that it makes
 * in pairs of blocks more than one block: what measurements of 400 shapes gave. `size`: of what is covered with tiles;
 * `made`: channels that come in pairs. */
static bool is_worth_winograd(const lk_block_conv *conv, const int64_t size[2], int64_t made)
{
    enum { TILE = 4, LEAST_TILES = 32 };
    int block = lk__block_winograd()->block;
    int64_t tiles = (size[0] + TILE - 1) / TILE * ((size[1] + TILE - 1) / TILE);
    return conv->images * tiles >= LEAST_TILES && 3 * size[0] * size[1] >= 2 * tiles * TILE * TILE && made > block;
}

static int64_t output_size(const lk_conv_problem *p, int axis)
{
    const lk_conv2d_opts *opts = &p->attrs.conv;
    int64_t span = opts->dilation[axis] * (p->w.dim[2 + axis] - 1) + 1;
    return (p->x.dim[2 + axis] + 2 * opts->padding[axis] - span) / opts->stride[axis] + 1;
}

static lk_block_conv conv_of_problem(const lk_conv_problem *p)
{
    lk_shape y = LK_SHAPE(p->x.dim[0], p->w.dim[0], output_size(p, 0), output_size(p, 1));
    return lk__cpu_block_conv_of(p->x, p->w, y, &p->attrs.conv);
}

/* With AVX-512 oneDNN convolves at close to what the core can do, where it is not strided: docs/performance.md. */
bool lk__cpu_direct_is_worth(const lk_conv_problem *problem)
{
    (void)problem;
    return lk__block_direct()->block == 8;
}

bool lk__cpu_winograd_takes(const lk_conv_problem *problem)
{
    lk_block_conv conv = conv_of_problem(problem);
    return lk__block_winograd()->takes(&conv);
}

bool lk__cpu_winograd_is_worth(const lk_conv_problem *problem)
{
    lk_block_conv conv = conv_of_problem(problem);
    bool back = problem->op == LK_OP_CONV2D_INPUT_GRAD;
    return is_worth_winograd(&conv, back ? conv.in : conv.out, back ? conv.channels : conv.filters);
}

static const lk_block_algorithm *algorithm_of(const lk_call *call)
{
    return ((const lk_alternative *)call->choice)->block();
}

/* What one call computes, and how. */
typedef struct task {
    lk_block_conv conv;
    const lk_block_algorithm *algorithm;
} task;

static task forward_task(const lk_call *call)
{
    task t = {.conv = forward_conv(call)};
    t.algorithm = algorithm_of(call);
    return t;
}

static task input_grad_task(const lk_call *call)
{
    task t = {.conv = input_grad_conv(call)};
    t.algorithm = algorithm_of(call);
    return t;
}

static task weight_grad_task(const lk_call *call)
{
    task t = {.conv = weight_grad_conv(call)};
    t.algorithm = algorithm_of(call);
    return t;
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static lk_status in_blocks(const task *t, const lk_tensor *x, const lk_layout **layout)
{
    return lk__layout_tagged(x->shape, LK_F32, t->algorithm->block == 16 ? dnnl_nChw16c : dnnl_nChw8c, layout);
}

static void describe(const lk_call *call, lk_prepared *prepared, const task *t)
{
    lk__conv_call_text(call, prepared->problem, sizeof prepared->problem);
    snprintf(prepared->implementation, sizeof prepared->implementation, "%s", t->algorithm->name);
    prepared->scratch_bytes = t->algorithm->memory(&t->conv);
}

/* x → y, or dy → dx. */
static lk_status prepare_image(const lk_call *call, const task *t, lk_prepared *prepared)
{
    describe(call, prepared, t);
    prepared->weights = 1;
    prepared->packed_bytes = t->algorithm->kept_bytes(&t->conv, call->op->id == LK_OP_CONV2D_INPUT_GRAD);
    LK_TRY(in_blocks(t, call->in[0], &prepared->layouts_in[0]));
    return in_blocks(t, call->out[0], &prepared->layouts_out[0]);
}

static lk_status prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    task t = forward_task(call);
    return prepare_image(call, &t, prepared);
}

static lk_status prepare_input_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    task t = input_grad_task(call);
    return prepare_image(call, &t, prepared);
}

/* Gradients of parameters are always plain. */
static lk_status prepare_weight_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    task t = weight_grad_task(call);
    describe(call, prepared, &t);
    LK_TRY(in_blocks(&t, call->in[0], &prepared->layouts_in[0]));
    return in_blocks(&t, call->in[1], &prepared->layouts_in[1]);
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
    lk__key_add(&key, (int64_t[]){(int64_t)(uintptr_t)call->choice}, 1);
    return lk__own_run(call, &key, prepare, compute);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

lk_block_weights lk__cpu_block_weights_of(const lk_call *call, const float *plain)
{
    lk_packed packed = lk__own_packed(call, NULL);
    return (lk_block_weights){plain, packed.data, packed.is_made};
}

static void compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    task t = forward_task(call);
    lk_block_weights w = lk__cpu_block_weights_of(call, in[1].data);
    t.algorithm->conv2d(&t.conv, in[0].data, &w, in[2].data, call->out[0]->storage->data, NULL, scratch);
}

lk_status lk__cpu_block_conv2d(lk_call *call)
{
    return run(call, LK_ATTRS(call, lk_conv2d_opts), prepare_forward, compute_forward);
}

static void compute_input_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    task t = input_grad_task(call);
    lk_block_weights w = lk__cpu_block_weights_of(call, in[1].data);
    t.algorithm->input_grad(&t.conv, in[0].data, &w, call->out[0]->storage->data, scratch);
}

lk_status lk__cpu_block_conv2d_input_grad(lk_call *call)
{
    return run(call, &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, prepare_input_grad, compute_input_grad);
}

static void compute_weight_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    task t = weight_grad_task(call);
    t.algorithm->weight_grad(&t.conv, in[0].data, in[1].data, lk__cpu_data(call->out[0]), scratch);
}

lk_status lk__cpu_block_conv2d_weight_grad(lk_call *call)
{
    LK_TRY(run(call, &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, prepare_weight_grad, compute_weight_grad));
    return call->n_out > 1 ? lk__cpu_bias_gradient(call) : LK_OK;
}
