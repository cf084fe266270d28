/* conv_block without pooling, and its gradient, in blocks of channels. The convolution applies relu as it stores its
 * results and saves a bit for each of them. The gradient masks dy with these bits once, into dz, for the three sums. */
#include "cpu/blocks/cpu_block_act.h"

#include "base/avx2.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/blocks/cpu_block_conv.h"
#include "cpu/cpu_channels.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_own.h"
#include "cpu/onednn/cpu_bias.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <string.h>

/* --- whether block_conv.h runs a call ----------------------------------------------------------------------------- */

bool lk__cpu_blocks_take_act(const lk_conv_problem *p)
{
    return p->attrs.pooling == LK_BLOCK_NO_POOL && p->attrs.relu && p->x.dim[0] > 0 &&
           lk__cpu_blocks_take_conv(p->x, p->w, &p->attrs.conv);
}

/* Returns whether Winograd suits the convolution alone, in the direction `op`. */
static bool cpu_block_act_wants_winograd(const lk_conv_problem *p, int op)
{
    lk_conv_problem one = *p;
    one.op = op;
    return lk__cpu_winograd_takes(&one) && lk__cpu_winograd_is_worth(&one);
}

bool lk__cpu_winograd_act_is_worth(const lk_conv_problem *p)
{
    return cpu_block_act_wants_winograd(p, LK_OP_CONV2D) && cpu_block_act_wants_winograd(p, LK_OP_CONV2D_INPUT_GRAD);
}

bool lk__cpu_direct_act_is_worth(const lk_conv_problem *p)
{
    return lk__cpu_direct_is_worth(p) && !cpu_block_act_wants_winograd(p, LK_OP_CONV2D) &&
           !cpu_block_act_wants_winograd(p, LK_OP_CONV2D_INPUT_GRAD);
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static lk_geometry act_conv_of(const lk_call *call, const lk_tensor *x, const lk_tensor *w, const lk_tensor *y)
{
    return lk__geometry_of_conv(x->shape, w->shape, y->shape, &LK_ATTRS(call, lk_conv_block_attrs)->conv);
}

static dnnl_format_tag_t cpu_block_act_tag_of(const lk_call *call)
{
    return lk__cpu_block_algorithm(call)->block == 16 ? dnnl_nChw16c : dnnl_nChw8c;
}

static lk_status block_act_run(lk_call *call, lk_prepare_fn prepare, lk_own_fn compute)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_key key;
    lk__key_call(&key, call);
    lk__key_conv(&key, &attrs->conv);
    lk__key_add(&key, (int64_t[]){attrs->bias, attrs->input_grad, (int64_t)(uintptr_t)call->choice}, 3);
    return lk__own_run(call, &key, prepare, compute);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status block_act_prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_geometry conv = act_conv_of(call, call->in[0], call->in[1], call->out[0]);
    lk__cpu_choice_describe(call, prepared);
    prepared->scratch_bytes = lk__cpu_block_algorithm(call)->memory(&conv);
    prepared->weights = 1;
    prepared->packed_bytes = lk__cpu_block_algorithm(call)->kept_bytes(&conv, false);
    LK_TRY(lk__cpu_block_layout(call, call->in[0], &prepared->layouts_in[0]));
    return lk__cpu_block_layout(call, call->out[0], &prepared->layouts_out[0]);
}

static void block_act_compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_geometry conv = act_conv_of(call, call->in[0], call->in[1], call->out[0]);
    lk_block_weights w = lk__cpu_block_weights_of(call, in[1].data);
    lk__cpu_block_algorithm(call)->conv2d(&conv, in[0].data, &w, in[2].data, call->out[0]->storage->data,
                                          call->out[1]->storage->data, scratch);
}

lk_status lk__cpu_block_act(lk_call *call)
{
    return block_act_run(call, block_act_prepare_forward, block_act_compute_forward);
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)

/* Sets dz to dy where a bit is set, otherwise to 0. count: a multiple of 16. */
LK_AVX2 static void cpu_block_act_keep_passed_bf16(const uint16_t *dy, const uint8_t *passed, int64_t count,
                                                   uint16_t *dz)
{
    const __m256i lane =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, INT16_MIN);
    for (int64_t i = 0; i < count; i += 16) {
        int16_t all;
        memcpy(&all, passed + i / 8, sizeof all);
        __m256i mask = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(all), lane), lane);
        __m256i kept = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(dy + i)), mask);
        _mm256_storeu_si256((__m256i *)(void *)(dz + i), kept);
    }
}

LK_AVX2 static void cpu_block_act_keep_passed(const float *dy, const uint8_t *passed, int64_t count, float *dz)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (int64_t i = 0; i < count; i += 8) {
        __m256i bits = _mm256_and_si256(_mm256_set1_epi32(passed[i / 8]), lane);
        __m256 mask = _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, lane));
        _mm256_storeu_ps(dz + i, _mm256_and_ps(_mm256_loadu_ps(dy + i), mask));
    }
}

#else

static void cpu_block_act_keep_passed_bf16(const uint16_t *dy, const uint8_t *passed, int64_t count, uint16_t *dz)
{
    for (int64_t i = 0; i < count; i++)
        dz[i] = passed[i / 8] >> i % 8 & 1 ? dy[i] : 0;
}

static void cpu_block_act_keep_passed(const float *dy, const uint8_t *passed, int64_t count, float *dz)
{
    for (int64_t i = 0; i < count; i++)
        dz[i] = passed[i / 8] >> i % 8 & 1 ? dy[i] : 0;
}

#endif

static lk_geometry act_grad_conv(const lk_call *call)
{
    return act_conv_of(call, call->in[2], call->in[3], call->in[0]);
}

/* Bytes of scratch memory that the sums use one after the other; dz follows them. */
static size_t cpu_block_act_sums_bytes(const lk_call *call)
{
    lk_geometry conv = act_grad_conv(call);
    lk_channels channels = lk__channels_of(call->in[0], cpu_block_act_tag_of(call));
    size_t convolution = lk__cpu_block_gradient_bytes(call, &conv), bias = lk__channel_memory_bytes(&channels);
    return lk__aligned_bytes(convolution > bias ? convolution : bias);
}

static lk_status block_act_prepare_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk__cpu_choice_describe(call, prepared);
    prepared->scratch_bytes =
        cpu_block_act_sums_bytes(call) + (size_t)lk_tensor_count(call->in[0]) * lk_dtype_size(call->dtype);
    if (attrs->input_grad) {
        lk_geometry conv = act_grad_conv(call);
        prepared->weights = 3;
        prepared->packed_bytes = lk__cpu_block_algorithm(call)->kept_bytes(&conv, true);
    }
    LK_TRY(lk__cpu_block_layout(call, call->in[0], &prepared->layouts_in[0]));
    LK_TRY(lk__cpu_block_layout(call, call->in[2], &prepared->layouts_in[2]));
    return attrs->input_grad ? lk__cpu_block_layout(call, call->in[2], &prepared->layouts_out[1 + attrs->bias]) : LK_OK;
}

static void block_act_compute_grad(lk_call *call, const lk_converted *in, float *scratch)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    const lk_block_algorithm *algorithm = lk__cpu_block_algorithm(call);
    lk_geometry conv = act_grad_conv(call);
    lk_channels channels = lk__channels_of(call->in[0], cpu_block_act_tag_of(call));
    void *dz = scratch + cpu_block_act_sums_bytes(call) / sizeof(float);
    if (call->dtype == LK_BF16)
        cpu_block_act_keep_passed_bf16(in[0].data, lk__cpu_data(call->in[1]), lk_tensor_count(call->in[0]), dz);
    else
        cpu_block_act_keep_passed(in[0].data, lk__cpu_data(call->in[1]), lk_tensor_count(call->in[0]), dz);
    lk__cpu_block_gradient(call, &conv, dz, in[2].data, call->out[0], scratch);
    if (attrs->bias)
        lk__cpu_bias_sums(&channels, dz, call->out[1], scratch);
    if (!attrs->input_grad)
        return;
    lk_block_weights w = lk__cpu_block_weights_of(call, in[3].data);
    algorithm->input_grad(&conv, dz, &w, call->out[1 + attrs->bias]->storage->data, scratch);
}

lk_status lk__cpu_block_act_grad(lk_call *call)
{
    return block_act_run(call, block_act_prepare_grad, block_act_compute_grad);
}
