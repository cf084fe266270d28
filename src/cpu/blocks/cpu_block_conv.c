#include "cpu/blocks/cpu_block_conv.h"

#include "base/bf16.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/isa.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

/* A chunk has fewer than 512 images, and offsets within it must fit into 32 bits. */
static bool block_conv_is_small(lk_shape x, int64_t filters, const lk_conv2d_opts *opts)
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
           block_conv_is_small(x, w.dim[0], opts);
}

/* --- which algorithm ---------------------------------------------------------------------------------------------- */

/* Tiles must be full enough, and numerous enough to outweigh transforming the kernels. The channels of the result must
 * be more than one block, since blocks are computed in pairs. Measurements gave these limits
 * (docs/lab/cpu-convolutions.md). size: height and width of the result; made: its channels. */
static bool block_conv_is_worth_winograd(const lk_geometry *conv, const int64_t size[2], int64_t made)
{
    enum { TILE = 4, LEAST_TILES = 8 };
    int block = lk__block_winograd()->block;
    int64_t tiles = (size[0] + TILE - 1) / TILE * ((size[1] + TILE - 1) / TILE);
    return conv->images * tiles >= LEAST_TILES && 3 * size[0] * size[1] >= 2 * tiles * TILE * TILE && made > block;
}

static int64_t block_conv_output_size(const lk_conv_problem *p, int axis)
{
    const lk_conv2d_opts *opts = &p->attrs.conv;
    int64_t span = opts->dilation[axis] * (p->w.dim[2 + axis] - 1) + 1;
    return (p->x.dim[2 + axis] + 2 * opts->padding[axis] - span) / opts->stride[axis] + 1;
}

static lk_geometry conv_of_problem(const lk_conv_problem *p)
{
    lk_shape y = LK_SHAPE(p->x.dim[0], p->w.dim[0], block_conv_output_size(p, 0), block_conv_output_size(p, 1));
    return lk__geometry_of_conv(p->x, p->w, y, &p->attrs.conv);
}

/* With AVX-512 oneDNN comes close to the peak of a core, but not in gradients of strided convolutions of many channels,
 * whose planes are small: docs/lab/cpu-convolutions.md. In bf16 it would run on f32 stand-ins. */
bool lk__cpu_direct_is_worth(const lk_conv_problem *problem)
{
    enum { MANY = 128 };
    const int64_t *stride = problem->attrs.conv.stride;
    bool is_gradient = problem->op == LK_OP_CONV2D_INPUT_GRAD || problem->op == LK_OP_CONV2D_WEIGHT_GRAD;
    bool is_small = problem->x.dim[1] >= MANY && (stride[0] > 1 || stride[1] > 1);
    return problem->dtype == LK_BF16 || lk__block_direct()->block == 8 || (is_gradient && is_small);
}

bool lk__cpu_winograd_takes(const lk_conv_problem *problem)
{
    lk_geometry conv = conv_of_problem(problem);
    return lk__block_winograd()->takes(&conv);
}

bool lk__cpu_tiles_take(const lk_conv_problem *problem)
{
    const lk_block_algorithm *tiles = lk__block_tiles();
    lk_geometry conv = conv_of_problem(problem);
    return tiles && tiles->takes(&conv);
}

bool lk__cpu_winograd_is_worth(const lk_conv_problem *problem)
{
    lk_geometry conv = conv_of_problem(problem);
    bool back = problem->op == LK_OP_CONV2D_INPUT_GRAD;
    return block_conv_is_worth_winograd(&conv, back ? conv.in : conv.out, back ? conv.channels : conv.filters);
}

const lk_block_algorithm *lk__cpu_block_algorithm(const lk_call *call)
{
    return lk__cpu_choice(call)->block();
}

lk_status lk__cpu_block_layout(const lk_call *call, const lk_tensor *x, const lk_layout **layout)
{
    int block = lk__cpu_block_algorithm(call)->block;
    return lk__layout_tagged(x->shape, LK_F32, block == 16 ? dnnl_nChw16c : dnnl_nChw8c, layout);
}

/* The convolution of a call, and the algorithm that computes it. */
typedef struct task {
    lk_geometry conv;
    const lk_block_algorithm *algorithm;
} task;

static task block_task(const lk_call *call, const lk_tensor *x, const lk_tensor *w, const lk_tensor *y)
{
    bool forward = call->op->id == LK_OP_CONV2D;
    const lk_conv2d_opts *opts = forward ? LK_ATTRS(call, lk_conv2d_opts) : &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    return (task){lk__geometry_of_conv(x->shape, w->shape, y->shape, opts), lk__cpu_block_algorithm(call)};
}

static task block_conv_forward_task(const lk_call *call)
{
    return block_task(call, call->in[0], call->in[1], call->out[0]);
}

static task block_conv_input_grad_task(const lk_call *call)
{
    return block_task(call, call->out[0], call->in[1], call->in[0]);
}

static task block_conv_weight_grad_task(const lk_call *call)
{
    return block_task(call, call->in[1], call->out[0], call->in[0]);
}

size_t lk__cpu_block_gradient_bytes(const lk_call *call, const lk_geometry *conv)
{
    size_t bytes = lk__aligned_bytes(lk__cpu_block_algorithm(call)->memory(conv));
    return call->dtype == LK_BF16 ? bytes + (size_t)lk__geometry_w_count(conv) * sizeof(float) : bytes;
}

void lk__cpu_block_gradient(const lk_call *call, const lk_geometry *conv, const void *dy, const void *x,
                            const lk_tensor *dw, float *scratch)
{
    const lk_block_algorithm *algorithm = lk__cpu_block_algorithm(call);
    if (dw->dtype == LK_F32) {
        algorithm->weight_grad(conv, dy, x, lk__cpu_data(dw), scratch);
        return;
    }
    float *sums = scratch + lk__aligned_bytes(algorithm->memory(conv)) / sizeof(float);
    algorithm->weight_grad(conv, dy, x, sums, scratch);
    lk__bf16_round(sums, lk__cpu_data(dw), lk__geometry_w_count(conv));
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

/* Prepares a call that computes y from x, or dx from dy. */
static lk_status block_prepare_image(const lk_call *call, const task *t, lk_prepared *prepared)
{
    lk__cpu_choice_describe(call, prepared);
    prepared->scratch_bytes = t->algorithm->memory(&t->conv);
    prepared->weights = 1;
    prepared->packed_bytes = t->algorithm->kept_bytes(&t->conv, call->op->id == LK_OP_CONV2D_INPUT_GRAD);
    LK_TRY(lk__cpu_block_layout(call, call->in[0], &prepared->layouts_in[0]));
    return lk__cpu_block_layout(call, call->out[0], &prepared->layouts_out[0]);
}

static lk_status block_prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    task t = block_conv_forward_task(call);
    return block_prepare_image(call, &t, prepared);
}

static lk_status block_prepare_input_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    task t = block_conv_input_grad_task(call);
    return block_prepare_image(call, &t, prepared);
}

/* Gradients of parameters are always plain. */
static lk_status block_prepare_weight_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    task t = block_conv_weight_grad_task(call);
    lk__cpu_choice_describe(call, prepared);
    prepared->scratch_bytes = lk__cpu_block_gradient_bytes(call, &t.conv);
    LK_TRY(lk__cpu_block_layout(call, call->in[0], &prepared->layouts_in[0]));
    return lk__cpu_block_layout(call, call->in[1], &prepared->layouts_in[1]);
}

static lk_status block_conv_run(lk_call *call, const lk_conv2d_opts *opts, lk_prepare_fn prepare, lk_own_fn compute)
{
    lk_key key;
    lk__key_call(&key, call);
    lk__key_conv(&key, opts);
    for (int i = 0; i < call->n_out; i++)
        lk__key_add(&key, call->out[i]->shape.dim, call->out[i]->shape.ndim);
    lk__key_add(&key, (int64_t[]){(int64_t)(uintptr_t)call->choice}, 1);
    return lk__own_run(call, &key, prepare, compute);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

lk_block_weights lk__cpu_block_weights_of(const lk_call *call, const void *plain)
{
    lk_packed packed = lk__own_packed(call, NULL);
    return (lk_block_weights){plain, packed.data, packed.is_made};
}

static void block_compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    task t = block_conv_forward_task(call);
    lk_block_weights w = lk__cpu_block_weights_of(call, in[1].data);
    t.algorithm->conv2d(&t.conv, in[0].data, &w, in[2].data, call->out[0]->storage->data, NULL, scratch);
}

lk_status lk__cpu_block_conv2d(lk_call *call)
{
    return block_conv_run(call, LK_ATTRS(call, lk_conv2d_opts), block_prepare_forward, block_compute_forward);
}

static void block_compute_input_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    task t = block_conv_input_grad_task(call);
    lk_block_weights w = lk__cpu_block_weights_of(call, in[1].data);
    t.algorithm->input_grad(&t.conv, in[0].data, &w, call->out[0]->storage->data, scratch);
}

lk_status lk__cpu_block_conv2d_input_grad(lk_call *call)
{
    return block_conv_run(call, &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, block_prepare_input_grad,
                          block_compute_input_grad);
}

static void block_compute_weight_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    task t = block_conv_weight_grad_task(call);
    lk__cpu_block_gradient(call, &t.conv, in[0].data, in[1].data, call->out[0], scratch);
}

lk_status lk__cpu_block_conv2d_weight_grad(lk_call *call)
{
    LK_TRY(block_conv_run(call, &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, block_prepare_weight_grad,
                          block_compute_weight_grad));
    return call->n_out > 1 ? lk__cpu_bias_gradient(call) : LK_OK;
}
