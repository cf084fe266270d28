/* sigmoid, tanh, leaky_relu, elu, silu, gelu, softplus and their gradients, of f32 or bf16. The loops go over the
 * elements in memory order, as those of cpu_elements.c, and compute in double without branches, so that compilers
 * vectorize them. Exponentials are exact to 1e-12, so nearly all results are the exact ones, rounded. */
#include "base/avx2.h"
#include "base/bf16.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "ops/normal.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

/* --- functions ---------------------------------------------------------------------------------------------------- */

LK_BODY double activation_polynomial(double x, const double *coefficients, int n)
{
    double sum = coefficients[0];
    for (int i = 1; i < n; i++)
        sum = sum * x + coefficients[i];
    return sum;
}

/* e^x = scale + scale * rest */
typedef struct exponential {
    double scale, rest;
} exponential;

/* With x = n ln 2 + r, the scale is 2^n, infinite or 0 if that is no normal number, and the rest e^r - 1 by its Taylor
 * series, where |r| <= ln 2 / 2. The addition rounds x / ln 2 to n and leaves n + 1023, a double's exponent field, in
 * the lowest bits. */
LK_BODY exponential activation_exponential(double x)
{
    static const double series[] = {1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720,
                                    1. / 120,     1. / 24,     1. / 6,     1. / 2,    1};
    const double per_ln2 = 0x1.71547652b82fep+0, ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    const double round = 0x1.8p52 + 1023;
    x = x < -709 ? -709 : x;
    x = x > 710 ? 710 : x;
    double field = x * per_ln2 + round, n = field - round, r = (x - n * ln2_high) - n * ln2_low, scale;
    uint64_t bits;
    memcpy(&bits, &field, sizeof bits);
    bits <<= 52;
    memcpy(&scale, &bits, sizeof scale);
    return (exponential){scale, r * activation_polynomial(r, series, 10)};
}

LK_BODY double activation_exp(double x)
{
    exponential e = activation_exponential(x);
    return e.scale + e.scale * e.rest;
}

/* e^x - 1, for x <= 0 */
LK_BODY double activation_expm1(double x)
{
    exponential e = activation_exponential(x);
    return e.scale * e.rest + (e.scale - 1);
}

LK_BODY double activation_sigmoid(double x)
{
    return 1 / (1 + activation_exp(-x));
}

LK_BODY double activation_tanh(double x)
{
    double below = activation_expm1(-2 * fabs(x));
    return copysign(below / (below + 2), x);
}

/* max(x, 0) + ln(1 + w), where w = e^-|x| and ln(1 + w) = 2 artanh(w / (w + 2)), by its series. */
LK_BODY double activation_softplus(double x)
{
    static const double series[] = {2. / 23, 2. / 21, 2. / 19, 2. / 17, 2. / 15, 2. / 13,
                                    2. / 11, 2. / 9,  2. / 7,  2. / 5,  2. / 3,  2};
    double w = activation_exp(-fabs(x)), s = w / (w + 2);
    return (x < 0 ? 0 : x) + s * activation_polynomial(s * s, series, 12);
}

/* The standard normal distribution's cumulative distribution function and its density: see ops/normal.h. */
typedef struct normal {
    double cdf, density;
} normal;

/* Beyond z = 28, exp(-z^2) is less than any double. */
LK_BODY normal activation_normal(double x)
{
    double z = fabs(x) * LK_SQRT_HALF;
    z = z > 28 ? 28 : z;
    double power = activation_exp(-z * z);
    double tail = 0.5 * power * activation_polynomial(z, lk__erfc_p, LK_ERFC_COEFFICIENTS) /
                  activation_polynomial(z, lk__erfc_q, LK_ERFC_COEFFICIENTS);
    return (normal){x > 0 ? 1 - tail : tail, LK_SQRT_HALF_PER_PI * power};
}

/* --- loops -------------------------------------------------------------------------------------------------------- */

LK_BODY double activation_value(lk_activation_kind kind, double alpha, double x)
{
    double below;
    switch (kind) {
    case LK_ACT_SIGMOID:
        return activation_sigmoid(x);
    case LK_ACT_TANH:
        return activation_tanh(x);
    case LK_ACT_LEAKY_RELU:
        return x > 0 ? x : alpha * x;
    case LK_ACT_ELU:
        below = alpha * activation_expm1(x);
        return x > 0 ? x : below;
    case LK_ACT_SILU:
        return x * activation_sigmoid(x);
    case LK_ACT_GELU:
        return x * activation_normal(x).cdf;
    default:
        return activation_softplus(x);
    }
}

LK_BODY double activation_slope(lk_activation_kind kind, double alpha, double x, double y)
{
    double below;
    normal n;
    switch (kind) {
    case LK_ACT_SIGMOID:
        return y * (1 - y);
    case LK_ACT_TANH:
        return 1 - y * y;
    case LK_ACT_LEAKY_RELU:
        return x > 0 ? 1 : alpha;
    case LK_ACT_ELU:
        below = alpha * activation_exp(x);
        return x > 0 ? 1 : below;
    case LK_ACT_SILU:
        below = activation_sigmoid(x);
        return below * (1 + x * (1 - below));
    case LK_ACT_GELU:
        n = activation_normal(x);
        return n.cdf + x * n.density;
    default:
        return activation_sigmoid(x);
    }
}

/* The elements of a call; dy is NULL unless the gradient is computed. */
typedef struct frame {
    const void *dy, *x, *y;
    void *out;
    int64_t count;
    double alpha;
} frame;

LK_BODY void activation_loop(const frame *f, lk_activation_kind kind, bool gradient, bool bf16)
{
    const void *dy = f->dy, *x = f->x, *y = f->y;
    void *out = f->out;
    double alpha = f->alpha;
    if (gradient) {
        LK_ANY_ORDER
        for (int64_t i = 0; i < f->count; i++) {
            double slope = activation_slope(kind, alpha, lk__element(x, i, bf16), lk__element(y, i, bf16));
            lk__element_set(out, i, (float)(lk__element(dy, i, bf16) * slope), bf16);
        }
    } else {
        LK_ANY_ORDER
        for (int64_t i = 0; i < f->count; i++)
            lk__element_set(out, i, (float)activation_value(kind, alpha, lk__element(x, i, bf16)), bf16);
    }
}

/* Each case is four loops of its own. */
#define CASE(kind)                                  \
    case kind:                                      \
        if (f->dy && bf16)                          \
            activation_loop(f, kind, true, true);   \
        else if (f->dy)                             \
            activation_loop(f, kind, true, false);  \
        else if (bf16)                              \
            activation_loop(f, kind, false, true);  \
        else                                        \
            activation_loop(f, kind, false, false); \
        break;

LK_BODY void activation_body(const frame *f, lk_activation_kind kind, bool bf16)
{
    switch (kind) {
        CASE(LK_ACT_SIGMOID)
        CASE(LK_ACT_TANH)
        CASE(LK_ACT_LEAKY_RELU)
        CASE(LK_ACT_ELU)
        CASE(LK_ACT_SILU)
        CASE(LK_ACT_GELU)
        CASE(LK_ACT_SOFTPLUS)
    }
}

LK_AVX2 static void activation_avx2(const frame *f, lk_activation_kind kind, bool bf16)
{
    activation_body(f, kind, bf16);
}

LK_AVX512 static void activation_avx512(const frame *f, lk_activation_kind kind, bool bf16)
{
    activation_body(f, kind, bf16);
}

static void activation_anywhere(const frame *f, lk_activation_kind kind, bool bf16)
{
    activation_body(f, kind, bf16);
}

/* --- operators ---------------------------------------------------------------------------------------------------- */

/* Returns x's layout, or else that of another operand. Padding must stay 0, which sigmoid and softplus would not make
 * of it. */
static const lk_layout *activation_layout(const lk_call *call)
{
    bool gradient = call->op->id == LK_OP_ACTIVATION_GRAD;
    const lk_layout *layout = call->in[gradient]->storage->layout;
    for (int i = 0; i < call->n_in && !layout; i++)
        layout = call->in[i]->storage->layout;
    lk_activation_kind kind = LK_ATTRS(call, lk_activation_attrs)->kind;
    bool keeps_zero = gradient || (kind != LK_ACT_SIGMOID && kind != LK_ACT_SOFTPLUS);
    bool padded = lk__own_elements(call->out[0], layout) != lk_tensor_count(call->out[0]);
    return call->free_layout && (keeps_zero || !padded) ? layout : NULL;
}

static lk_status activation_prepare(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk__own_prepare_elements(call, activation_layout(call), prepared);
    return LK_OK;
}

static void activation_compute(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const lk_tensor *out = call->out[0];
    const lk_activation_attrs *attrs = LK_ATTRS(call, lk_activation_attrs);
    bool gradient = call->op->id == LK_OP_ACTIVATION_GRAD;
    frame f = {.x = in[gradient].data,
               .out = lk__cpu_data(out),
               .count = lk__own_elements(out, out->storage->layout),
               .alpha = attrs->alpha};
    if (gradient) {
        f.dy = in[0].data;
        f.y = in[2].data;
    }
    (lk__has_avx512() ? activation_avx512
     : lk__has_avx2() ? activation_avx2
                      : activation_anywhere)(&f, attrs->kind, call->dtype == LK_BF16);
}

lk_status lk__cpu_activation(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__key_call(&key, call);
    lk__key_add(&key, (const int64_t[]){LK_ATTRS(call, lk_activation_attrs)->kind}, 1);
    return lk__own_run(call, &key, activation_prepare, activation_compute);
}
