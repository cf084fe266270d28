/* The fused optimizer updates and the norms that they need: loops that compilers turn into vectors. Each operation is
 * rounded by itself, so the width of vectors makes no difference. */
#include "base/avx2.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "ops/fused_update.h"
#include "ops/ops.h"
#include "ops/squared_norms.h"
#include "ops/update.h"

#include <math.h>
#include <string.h>

static float *cpu_update_operand_data(const lk_tensor *tensor)
{
    return tensor ? lk__data(tensor) : NULL;
}

static bool update_is_skipped(const lk_tensor *skip)
{
    return skip && *(const float *)lk__data(skip) != 0;
}

static float cpu_update_gradient_scale(const lk_tensor *scale)
{
    return scale ? *(const float *)lk__data(scale) : 1;
}

/* --- momentum ----------------------------------------------------------------------------------------------------- */

typedef struct momentum {
    float rate, momentum, decay, scale;
} momentum;

LK_BODY void update_plain(momentum u, float *restrict w, const float *restrict g, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        w[i] = w[i] - u.rate * (u.scale * g[i] + u.decay * w[i]);
}

LK_BODY void update_heavy_ball(momentum u, float *restrict w, const float *restrict g, float *restrict v, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        v[i] = u.momentum * v[i] + (u.scale * g[i] + u.decay * w[i]);
        w[i] = w[i] - u.rate * v[i];
    }
}

LK_BODY void update_nesterov(momentum u, float *restrict w, const float *restrict g, float *restrict v, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float gradient = u.scale * g[i] + u.decay * w[i];
        v[i] = u.momentum * v[i] + gradient;
        w[i] = w[i] - u.rate * (gradient + u.momentum * v[i]);
    }
}

/* v: NULL without momentum. */
LK_BODY void update_momentum(momentum u, bool nesterov, float *w, const float *g, float *v, int64_t count)
{
    if (!v)
        update_plain(u, w, g, count);
    else if (nesterov)
        update_nesterov(u, w, g, v, count);
    else
        update_heavy_ball(u, w, g, v, count);
}

LK_AVX2 static void update_momentum_avx2(momentum u, bool nesterov, float *w, const float *g, float *v, int64_t count)
{
    update_momentum(u, nesterov, w, g, v, count);
}

static void update_momentum_anywhere(momentum u, bool nesterov, float *w, const float *g, float *v, int64_t count)
{
    update_momentum(u, nesterov, w, g, v, count);
}

lk_status lk__cpu_momentum_update(lk_call *call)
{
    const lk_momentum_attrs *attrs = LK_ATTRS(call, lk_momentum_attrs);
    float *w = cpu_update_operand_data(call->in[0]), *g = cpu_update_operand_data(call->in[1]),
          *v = cpu_update_operand_data(call->in[2]);
    int64_t count = lk_tensor_count(call->in[0]);
    momentum u = {(float)lk__update_rate(call->in[5], 0, attrs->rate), (float)attrs->momentum,
                  (float)attrs->weight_decay, cpu_update_gradient_scale(call->in[4])};
    if (!update_is_skipped(call->in[3]))
        (lk__has_avx2() ? update_momentum_avx2 : update_momentum_anywhere)(u, attrs->nesterov, w, g, v, count);
    return LK_OK;
}

/* --- Adam --------------------------------------------------------------------------------------------------------- */

typedef struct adam {
    float beta1, rest1, beta2, rest2, step, unbias, epsilon, decay, keep, scale;
} adam;

LK_BODY void adam_loop(adam u, float *restrict w, const float *restrict g, float *restrict m, float *restrict v,
                       int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float gradient = u.scale * g[i] + u.decay * w[i];
        m[i] = u.beta1 * m[i] + u.rest1 * gradient;
        v[i] = u.beta2 * v[i] + u.rest2 * (gradient * gradient);
        w[i] = u.keep * w[i] - (u.step * m[i]) / (sqrtf(v[i] * u.unbias) + u.epsilon);
    }
}

LK_AVX2 static void adam_avx2(adam u, float *w, const float *g, float *m, float *v, int64_t count)
{
    adam_loop(u, w, g, m, v, count);
}

static void adam_anywhere(adam u, float *w, const float *g, float *m, float *v, int64_t count)
{
    adam_loop(u, w, g, m, v, count);
}

lk_status lk__cpu_adam_update(lk_call *call)
{
    const lk_adam_attrs *attrs = LK_ATTRS(call, lk_adam_attrs);
    adam u = {.beta1 = (float)attrs->beta1,
              .rest1 = (float)attrs->rest1,
              .beta2 = (float)attrs->beta2,
              .rest2 = (float)attrs->rest2,
              .step = (float)lk__update_rate(call->in[6], 0, attrs->step),
              .unbias = (float)lk__update_rate(call->in[6], 1, attrs->unbias),
              .epsilon = (float)attrs->epsilon,
              .decay = (float)attrs->weight_decay,
              .keep = (float)lk__update_rate(call->in[6], 2, attrs->keep),
              .scale = cpu_update_gradient_scale(call->in[5])};
    if (!update_is_skipped(call->in[4]))
        (lk__has_avx2() ? adam_avx2 : adam_anywhere)(
            u, cpu_update_operand_data(call->in[0]), cpu_update_operand_data(call->in[1]),
            cpu_update_operand_data(call->in[2]), cpu_update_operand_data(call->in[3]), lk_tensor_count(call->in[0]));
    return LK_OK;
}

/* --- LARS --------------------------------------------------------------------------------------------------------- */

static void cpu_update_lars_loop(momentum u, float *restrict w, const float *restrict g, float *restrict v,
                                 int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        v[i] = u.momentum * v[i] + u.rate * (u.scale * g[i] + u.decay * w[i]);
        w[i] = w[i] - v[i];
    }
}

lk_status lk__cpu_lars_update(lk_call *call)
{
    const lk_lars_attrs *attrs = LK_ATTRS(call, lk_lars_attrs);
    float *w = cpu_update_operand_data(call->in[0]), *g = cpu_update_operand_data(call->in[1]),
          *v = cpu_update_operand_data(call->in[2]);
    const int64_t *offsets = lk__data(call->in[3]);
    const float *ratios = cpu_update_operand_data(call->in[4]), *adapted = cpu_update_operand_data(call->in[5]);
    int64_t segments = lk_tensor_count(call->in[4]);
    LK_TRY(lk__check_segments(call->op->name, offsets, segments, lk_tensor_count(call->in[0])));
    for (int64_t s = 0; s < segments && !update_is_skipped(call->in[6]); s++) {
        float rate = (float)lk__update_rate(call->in[8], 0, attrs->rate), adapted_rate = rate * ratios[s];
        momentum u = {.rate = isfinite(adapted_rate) ? adapted_rate : rate,
                      .momentum = (float)attrs->momentum,
                      .decay = (float)attrs->weight_decay * adapted[s],
                      .scale = cpu_update_gradient_scale(call->in[7])};
        int64_t begin = offsets[s];
        cpu_update_lars_loop(u, w + begin, g + begin, v + begin, offsets[s + 1] - begin);
    }
    return LK_OK;
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

typedef float singles __attribute__((vector_size(16), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(32)));
enum { WIDTH = sizeof(doubles) / sizeof(double), VECTORS = LK_NORM_LANES / WIDTH, AHEAD = 512 };

/* Sums the squares of `rows` elements of each lane. The sums stay in registers, and data is prefetched from memory. */
LK_BODY void sum_squares(const float *x, int64_t rows, doubles *lanes)
{
    doubles sum[VECTORS] = {{0}};
    for (int64_t row = 0; row < rows; row++, x += LK_NORM_LANES) {
        __builtin_prefetch(x + AHEAD);
        __builtin_prefetch(x + AHEAD + LK_NORM_LANES / 2);
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) {
            doubles value = __builtin_convertvector(*(const singles *)(x + (ptrdiff_t)j * WIDTH), doubles);
            sum[j] += value * value;
        }
    }
    for (int j = 0; j < VECTORS; j++)
        lanes[j] = sum[j];
}

LK_AVX2 static void sum_squares_avx2(const float *x, int64_t rows, doubles *lanes)
{
    sum_squares(x, rows, lanes);
}

static void cpu_update_sum_squares_anywhere(const float *x, int64_t rows, doubles *lanes)
{
    sum_squares(x, rows, lanes);
}

static double cpu_update_squares_of_block(const float *x, int64_t n)
{
    doubles lanes[VECTORS];
    double lane[LK_NORM_LANES];
    int64_t rows = n / LK_NORM_LANES;
    (lk__has_avx2() ? sum_squares_avx2 : cpu_update_sum_squares_anywhere)(x, rows, lanes);
    memcpy(lane, lanes, sizeof lane);
    x += rows * LK_NORM_LANES;
    for (int64_t j = 0; j < n % LK_NORM_LANES; j++)
        lane[j] += (double)x[j] * (double)x[j];
    for (int h = LK_NORM_LANES / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++)
            lane[j] += lane[j + h];
    return lane[0];
}

/* Adds up the blocks as a binary tree, as they come. sum[k] is the sum of a complete subtree with fewer blocks than the
 * one before. Two subtrees of one size are added at once, as a binary counter carries. */
static double cpu_update_squares_of_segment(const float *x, int64_t n)
{
    double sum[64];
    int depth = 0;
    for (int64_t block = 0; block * LK_NORM_BLOCK < n; block++) {
        int64_t begin = block * LK_NORM_BLOCK, left = n - begin;
        sum[depth++] = cpu_update_squares_of_block(x + begin, left < LK_NORM_BLOCK ? left : LK_NORM_BLOCK);
        for (int64_t carry = block; carry & 1; carry >>= 1) {
            depth--;
            sum[depth - 1] += sum[depth];
        }
    }
    while (depth > 1) {
        depth--;
        sum[depth - 1] += sum[depth];
    }
    return depth ? sum[0] : 0;
}

lk_status lk__cpu_squared_norms(lk_call *call)
{
    const float *x = lk__data(call->in[0]);
    const int64_t *offsets = lk__data(call->in[1]);
    double *norms = lk__data(call->out[0]);
    int64_t segments = lk_tensor_count(call->out[0]);
    LK_TRY(lk__check_segments(call->op->name, offsets, segments, lk_tensor_count(call->in[0])));
    for (int64_t s = 0; s < segments; s++)
        norms[s] = cpu_update_squares_of_segment(x + offsets[s], offsets[s + 1] - offsets[s]);
    return LK_OK;
}
