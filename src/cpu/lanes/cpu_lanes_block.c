/* conv_block and its gradient with images in the vector lanes. */
#include "cpu/lanes/cpu_lanes_block.h"

#include "base/mem.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/blocks/cpu_block_conv.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/isa.h"
#include "cpu/lanes/cpu_lanes.h"
#include "cpu/lanes/cpu_lanes_winograd.h"
#include "cpu/lanes/lanes.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>

/* --- whether lanes.h runs a call ---------------------------------------------------------------------------------- */

/* saved, y: the shapes of the convolution's result and of the pooling's. */
static lk_lanes_block lanes_block_of(lk_shape x, lk_shape w, lk_shape saved, lk_shape y,
                                     const lk_conv_block_attrs *attrs)
{
    static const lk_pool2d_opts none = {.kernel = {1, 1}, .stride = {1, 1}};
    const lk_pool2d_opts *pool = attrs->pooling == LK_BLOCK_NO_POOL ? &none : &attrs->pool;
    lk_lanes_block block = {
        .pool = lk__geometry_of_pool(saved, y, pool), .relu = attrs->relu, .max = attrs->pooling == LK_BLOCK_MAX_POOL};
    block.conv.images = x.dim[0];
    for (int i = 0; i < 2; i++) {
        block.conv.in[i] = x.dim[2 + i];
        block.conv.out[i] = saved.dim[2 + i];
        block.conv.kernel[i] = w.dim[2 + i];
        block.conv.padding[i] = attrs->conv.padding[i];
    }
    block.conv.in[2] = x.dim[1];
    block.conv.out[2] = w.dim[0];
    return block;
}

static bool lanes_block_is_dense(const lk_conv2d_opts *opts)
{
    for (int i = 0; i < 2; i++)
        if (opts->stride[i] != 1 || opts->dilation[i] != 1)
            return false;
    return opts->groups == 1;
}

/* Returns whether the saved bytes fit into the operator's second output, which has a byte for each element of the
 * convolution's result. */
static bool lanes_block_fits_saved(const lk_lanes_block *block)
{
    size_t bytes = (size_t)(block->conv.images * block->pool.in[0] * block->pool.in[1] * block->pool.channels);
    return lk__lanes(LK_F32)->saved_bytes(block) <= bytes &&
           (!block->max || block->pool.kernel[0] * block->pool.kernel[1] < 255);
}

/* Sets the shapes of the convolution's result and of the pooling's. */
static void lanes_block_set_sizes(const lk_conv_block_attrs *attrs, lk_shape x, lk_shape w, lk_shape *conv, lk_shape *y)
{
    *conv = *y = LK_SHAPE(x.dim[0], w.dim[0], 0, 0);
    for (int i = 0; i < 2; i++) {
        conv->dim[2 + i] = x.dim[2 + i] + 2 * attrs->conv.padding[i] - w.dim[2 + i] + 1;
        y->dim[2 + i] = conv->dim[2 + i];
        if (attrs->pooling != LK_BLOCK_NO_POOL)
            y->dim[2 + i] =
                (conv->dim[2 + i] + 2 * attrs->pool.padding[i] - attrs->pool.kernel[i]) / attrs->pool.stride[i] + 1;
    }
}

lk_lanes_block lk__cpu_lanes_block_of(const lk_conv_problem *p)
{
    lk_shape conv, y;
    lanes_block_set_sizes(&p->attrs, p->x, p->w, &conv, &y);
    return lanes_block_of(p->x, p->w, conv, y, &p->attrs);
}

/* This and lk__cpu_lanes_want_block look only at what conv_block and its gradient have in common, so both get one
 * answer. */
bool lk__cpu_lanes_take_block(const lk_conv_problem *p)
{
    if (!lanes_block_is_dense(&p->attrs.conv) || !lk__cpu_lanes_fill(p->x.dim[0]))
        return false;
    lk_lanes_block block = lk__cpu_lanes_block_of(p);
    return lanes_block_fits_saved(&block);
}

/* Before a pooling it is enough if one of the two numbers of channels fills no blocks: the pixels that a block skips
 * outweigh the conversion of the pooled result for a neighbor that wants blocks. */
bool lk__cpu_lanes_want_block(const lk_conv_problem *p)
{
    bool in = lk__cpu_lanes_want(p->x.dim[0], p->x.dim[1]), out = lk__cpu_lanes_want(p->x.dim[0], p->w.dim[0]);
    return p->attrs.pooling == LK_BLOCK_NO_POOL ? in && out : in || out;
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static void lanes_block_key(lk_key *key, const lk_call *call, const lk_conv_block_attrs *attrs)
{
    lk__key_call(key, call);
    lk__key_add(key, attrs->conv.padding, 2);
    lk__key_add(key, (int64_t[]){attrs->pooling, attrs->relu, attrs->bias}, 3);
    lk__key_add(key, (int64_t[]){lk__cpu_choice(call)->in_points, call->plain_next}, 2);
    if (attrs->pooling == LK_BLOCK_NO_POOL)
        return;
    lk__key_add(key, attrs->pool.kernel, 2);
    lk__key_add(key, attrs->pool.stride, 2);
    lk__key_add(key, attrs->pool.padding, 2);
}

/* Runs a call with images in the lanes, or by `by_blocks` if an algorithm of block_conv.h was chosen. */
static lk_status lanes_block_run(lk_call *call, lk_status (*by_blocks)(lk_call *), lk_prepare_fn prepare,
                                 lk_own_fn compute)
{
    lk_key key;
    if (!call->free_layout)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: results must be new tensors", call->op->name);
    if (lk__cpu_choose(call)->block)
        return by_blocks(call);
    lanes_block_key(&key, call, LK_ATTRS(call, lk_conv_block_attrs));
    return lk__own_run(call, &key, prepare, compute);
}

/* The scratch memory begins with room for packed weights, which is unused if they are kept between calls. */
static size_t lanes_block_packed_bytes(const lk_call *call, const lk_lanes_conv *conv)
{
    return lk__aligned_bytes(lk__lanes(call->dtype)->packed_bytes(conv));
}

static size_t lanes_block_winograd_packed_bytes(const lk_lanes_conv *conv)
{
    return lk__aligned_bytes(lk__lanes_winograd()->packed_count(conv) * sizeof(float));
}

/* --- row-major neighbors ------------------------------------------------------------------------------------------ */

/* The direct kernels process a pair of blocks of images at a time. A row-major operand is converted pair by pair, in a
 * buffer that stays in the second-level cache. Winograd takes strips of all images together, so there the whole tensor
 * is converted. */
static bool lanes_block_is_read_plain(const lk_call *call, int input)
{
    return !lk__cpu_choice(call)->in_points && !call->in[input]->storage->layout;
}

static bool lanes_block_is_written_plain(const lk_call *call)
{
    return !lk__cpu_choice(call)->in_points && call->plain_next;
}

static lk_status lanes_block_layout_of(const lk_tensor *x, bool plain, const lk_layout **layout)
{
    *layout = NULL;
    return plain ? LK_OK : lk__cpu_lanes_layout(x->shape, x->dtype, layout);
}

static int64_t lanes_block_pair_images(void)
{
    return 2 * lk__lanes(LK_F32)->lanes;
}

/* Bytes of an image of x. In the lanes of a bf16 tensor, channels are in pairs. */
static size_t lanes_block_image_bytes(const lk_tensor *x, bool plain)
{
    int64_t channels = x->shape.dim[1], pixels = x->shape.dim[2] * x->shape.dim[3];
    if (x->dtype == LK_BF16 && !plain)
        channels += channels % 2;
    return (size_t)(channels * pixels) * lk_dtype_size(x->dtype);
}

static size_t lanes_block_pair_bytes(const lk_tensor *x)
{
    return lk__aligned_bytes((size_t)lanes_block_pair_images() * lanes_block_image_bytes(x, false));
}

static lk_interleaving lanes_block_interleaving_of(lk_shape x, int64_t images)
{
    return lk__interleaving_of_images(images, x.dim[1], x.dim[2] * x.dim[3], lk__lanes(LK_F32)->lanes);
}

static void lanes_block_interleave(const lk_tensor *x, int64_t images, const void *plain, void *vectors)
{
    lk_interleaving shape = lanes_block_interleaving_of(x->shape, images);
    const lk_interleaver *to = lk__isa()->f32->interleaver;
    if (x->dtype == LK_BF16)
        to->interleave_pairs(&shape, plain, vectors);
    else
        to->interleave(&shape, plain, vectors);
}

static void lanes_block_deinterleave(const lk_tensor *x, int64_t images, const void *vectors, void *plain)
{
    lk_interleaving shape = lanes_block_interleaving_of(x->shape, images);
    const lk_interleaver *from = lk__isa()->f32->interleaver;
    if (x->dtype == LK_BF16)
        from->deinterleave_pairs(&shape, vectors, plain);
    else
        from->deinterleave(&shape, vectors, plain);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_lanes_block forward_block(const lk_call *call)
{
    return lanes_block_of(call->in[0]->shape, call->in[1]->shape, call->out[1]->shape, call->out[0]->shape,
                          LK_ATTRS(call, lk_conv_block_attrs));
}

static lk_status lanes_block_prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_lanes_block block = forward_block(call);
    lk__cpu_choice_describe(call, prepared);
    prepared->scratch_bytes =
        lk__cpu_choice(call)->in_points
            ? lanes_block_winograd_packed_bytes(&block.conv) + lk__lanes_winograd()->memory(&block)
            : lanes_block_packed_bytes(call, &block.conv) + lk__cpu_lanes_wide_bytes(call->in[2]) +
                  lanes_block_pair_bytes(call->in[0]) + lanes_block_pair_bytes(call->out[0]) +
                  lk__lanes(call->dtype)->forward_bytes(&block);
    prepared->weights = 1;
    prepared->packed_bytes = lk__cpu_choice(call)->in_points ? lanes_block_winograd_packed_bytes(&block.conv)
                                                             : lanes_block_packed_bytes(call, &block.conv);
    LK_TRY(lanes_block_layout_of(call->in[0], lanes_block_is_read_plain(call, 0), &prepared->layouts_in[0]));
    return lanes_block_layout_of(call->out[0], lanes_block_is_written_plain(call), &prepared->layouts_out[0]);
}

static void lanes_block_forward_in_points(const lk_lanes_block *block, lk_call *call, const lk_converted *in,
                                          float *scratch)
{
    lk_packed w = lk__own_packed(call, scratch);
    if (!w.is_made)
        lk__lanes_winograd()->pack(&block->conv, in[1].data, w.data);
    lk__lanes_winograd()->forward(block, in[0].data, w.data, in[2].data, call->out[0]->storage->data,
                                  call->out[1]->storage->data,
                                  (char *)scratch + lanes_block_winograd_packed_bytes(&block->conv));
}

/* Runs a pair of blocks of images, or what is left of one. memory: for operands in lanes, then for the kernel. */
static void lanes_block_forward_pair(const lk_lanes_block *pair, const lk_call *call, const void *all_x,
                                     const void *packed, const float *bias, int64_t first, uint8_t *saved, char *memory)
{
    bool plain_x = lanes_block_is_read_plain(call, 0), plain_y = lanes_block_is_written_plain(call);
    const lk_tensor *of_x = call->in[0], *of_y = call->out[0];
    const char *x = (const char *)all_x + (size_t)first * lanes_block_image_bytes(of_x, plain_x);
    char *y = (char *)of_y->storage->data + (size_t)first * lanes_block_image_bytes(of_y, plain_y);
    char *y_lanes = plain_y ? memory + lanes_block_pair_bytes(of_x) : y;
    char *for_kernel = memory + lanes_block_pair_bytes(of_x) + lanes_block_pair_bytes(of_y);
    if (plain_x) {
        lanes_block_interleave(of_x, pair->conv.images, x, memory);
        x = memory;
    }
    lk__lanes(call->dtype)->forward(pair, x, packed, bias, y_lanes, saved, for_kernel);
    if (plain_y)
        lanes_block_deinterleave(of_y, pair->conv.images, y_lanes, y);
}

static void lanes_block_forward_by_pairs(const lk_lanes_block *block, const lk_call *call, const lk_converted *in,
                                         float *scratch)
{
    uint8_t *saved = call->out[1]->storage->data;
    int64_t all = block->conv.images;
    lk_packed w = lk__own_packed(call, scratch);
    char *memory = (char *)scratch + lanes_block_packed_bytes(call, &block->conv);
    const float *bias = lk__cpu_lanes_widened(call, in, 2, memory);
    memory += lk__cpu_lanes_wide_bytes(call->in[2]);
    if (!w.is_made)
        lk__lanes(call->dtype)->pack(&block->conv, in[1].data, false, w.data);
    for (int64_t first = 0; first < all; first += lanes_block_pair_images()) {
        lk_lanes_block pair = *block;
        pair.conv.images = pair.pool.images =
            all - first < lanes_block_pair_images() ? all - first : lanes_block_pair_images();
        lanes_block_forward_pair(&pair, call, in[0].data, w.data, bias, first, saved, memory);
        saved += lk__lanes(call->dtype)->saved_bytes(&pair);
    }
}

static void lanes_block_compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_lanes_block block = forward_block(call);
    if (lk__cpu_choice(call)->in_points)
        lanes_block_forward_in_points(&block, call, in, scratch);
    else
        lanes_block_forward_by_pairs(&block, call, in, scratch);
}

lk_status lk__cpu_conv_block(lk_call *call)
{
    return lanes_block_run(call, lk__cpu_block_act, lanes_block_prepare_forward, lanes_block_compute_forward);
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

static lk_lanes_block grad_block(const lk_call *call)
{
    lk_lanes_block block = lanes_block_of(call->in[2]->shape, call->in[3]->shape, call->in[1]->shape,
                                          call->in[0]->shape, LK_ATTRS(call, lk_conv_block_attrs));
    block.plain_dy = lanes_block_is_read_plain(call, 0);
    block.plain_x = lanes_block_is_read_plain(call, 2);
    return block;
}

static size_t lanes_block_grad_packed_bytes(const lk_call *call, const lk_lanes_block *block)
{
    lk_lanes_conv back = lk__lanes_input_grad_conv(block);
    return lanes_block_packed_bytes(call, &back);
}

static lk_status lanes_block_prepare_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_lanes_block block = grad_block(call);
    lk__cpu_choice_describe(call, prepared);
    size_t packed = lanes_block_grad_packed_bytes(call, &block);
    prepared->scratch_bytes =
        packed + lk__lanes(call->dtype)->grad_bytes(&block, attrs->input_grad) + lk__cpu_lanes_wide_bytes(call->out[0]);
    if (attrs->bias)
        prepared->scratch_bytes += lk__cpu_lanes_wide_bytes(call->out[1]);
    if (lk__cpu_choice(call)->in_points) {
        packed = lanes_block_winograd_packed_bytes(&block.conv);
        size_t bytes = packed + lk__lanes_winograd()->memory(&block);
        if (bytes > prepared->scratch_bytes) /* dw may be summed directly */
            prepared->scratch_bytes = bytes;
    }
    if (attrs->input_grad) {
        prepared->weights = 3;
        prepared->packed_bytes = packed;
    }
    LK_TRY(lanes_block_layout_of(call->in[0], block.plain_dy, &prepared->layouts_in[0]));
    LK_TRY(lanes_block_layout_of(call->in[2], block.plain_x, &prepared->layouts_in[2]));
    if (!attrs->input_grad)
        return LK_OK;
    return lanes_block_layout_of(call->in[2], false, &prepared->layouts_out[1 + attrs->bias]);
}

static void lanes_block_grad_of_sums(const lk_call *call, const lk_lanes_block *block, lk_lanes_grad grad,
                                     const void *w, lk_packed packed, char *memory)
{
    if (grad.dx && !packed.is_made) {
        lk_lanes_conv back = lk__lanes_input_grad_conv(block);
        lk__lanes(call->dtype)->pack(&back, w, true, packed.data);
    }
    grad.packed = packed.data;
    lk__lanes(call->dtype)->grad(block, &grad, memory);
}

/* Computes dx by Winograd, and dw too unless a direct sum is faster. */
static void lanes_block_grad_in_points(const lk_call *call, const lk_lanes_block *block, lk_lanes_grad grad,
                                       const float *w, lk_packed packed, float *scratch)
{
    bool sums = lk__cpu_lanes_winograd_sums(block);
    lk_lanes_grad plain = grad;
    plain.dx = NULL;
    grad.packed = packed.data;
    if (!sums)
        grad.dw = NULL;
    if (grad.dx && !packed.is_made)
        lk__lanes_winograd()->pack(&block->conv, w, packed.data);
    lk__lanes_winograd()->grad(block, &grad, (char *)scratch + lanes_block_winograd_packed_bytes(&block->conv));
    if (!sums)
        lanes_block_grad_of_sums(call, block, plain, w, packed,
                                 (char *)scratch + lanes_block_grad_packed_bytes(call, block));
}

static void lanes_block_compute_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_lanes_block block = grad_block(call);
    char *memory = (char *)scratch + lanes_block_grad_packed_bytes(call, &block);
    lk_lanes_grad grad = {.dy = in[0].data,
                          .saved = lk__cpu_data(call->in[1]),
                          .x = in[2].data,
                          .dw = lk__cpu_lanes_wide(call->out[0], memory),
                          .dx = attrs->input_grad ? call->out[1 + attrs->bias]->storage->data : NULL};
    memory += lk__cpu_lanes_wide_bytes(call->out[0]);
    if (attrs->bias) {
        grad.dbias = lk__cpu_lanes_wide(call->out[1], memory);
        memory += lk__cpu_lanes_wide_bytes(call->out[1]);
    }
    lk_packed packed = lk__own_packed(call, scratch);
    if (lk__cpu_choice(call)->in_points)
        lanes_block_grad_in_points(call, &block, grad, in[3].data, packed, scratch);
    else
        lanes_block_grad_of_sums(call, &block, grad, in[3].data, packed, memory);
    lk__cpu_lanes_round(call->out[0], grad.dw);
    if (attrs->bias)
        lk__cpu_lanes_round(call->out[1], grad.dbias);
}

lk_status lk__cpu_conv_block_grad(lk_call *call)
{
    return lanes_block_run(call, lk__cpu_block_act_grad, lanes_block_prepare_grad, lanes_block_compute_grad);
}
