/* The activation operators except relu, and their gradients. */
#include "ops/normal.h"
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>

static double ref_activation_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The standard normal distribution: its cumulative distribution function and its density. */
static double ref_activation_normal_cdf(double x)
{
    return 0.5 * erfc(-x * LK_SQRT_HALF);
}

static double ref_activation_normal_density(double x)
{
    return LK_SQRT_HALF_PER_PI * exp(-0.5 * x * x);
}

static double ref_activation_value(lk_activation_attrs attrs, double x)
{
    switch (attrs.kind) {
    case LK_ACT_SIGMOID:
        return ref_activation_sigmoid(x);
    case LK_ACT_TANH:
        return tanh(x);
    case LK_ACT_LEAKY_RELU:
        return x > 0 ? x : attrs.alpha * x;
    case LK_ACT_ELU:
        return x > 0 ? x : attrs.alpha * expm1(x);
    case LK_ACT_SILU:
        return x * ref_activation_sigmoid(x);
    case LK_ACT_GELU:
        return x * ref_activation_normal_cdf(x);
    default:
        return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
    }
}

static double ref_activation_slope(lk_activation_attrs attrs, double x, double y)
{
    switch (attrs.kind) {
    case LK_ACT_SIGMOID:
        return y * (1 - y);
    case LK_ACT_TANH:
        return 1 - y * y;
    case LK_ACT_LEAKY_RELU:
        return x > 0 ? 1 : attrs.alpha;
    case LK_ACT_ELU:
        return x > 0 ? 1 : attrs.alpha * exp(x);
    case LK_ACT_SILU:
        return ref_activation_sigmoid(x) * (1 + x * (1 - ref_activation_sigmoid(x)));
    case LK_ACT_GELU:
        return ref_activation_normal_cdf(x) + x * ref_activation_normal_density(x);
    default:
        return ref_activation_sigmoid(x);
    }
}

lk_status lk__ref_activation(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_activation_attrs attrs = *LK_ATTRS(call, lk_activation_attrs);
    lk_ref_view out = lk__ref_view(call->out[0]);
    int64_t count = lk__ref_count(out.shape);
    const double *x = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        for (int64_t i = 0; i < count; i++)
            y[i] = ref_activation_value(attrs, x[i]);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_activation_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_activation_attrs attrs = *LK_ATTRS(call, lk_activation_attrs);
    lk_ref_view out = lk__ref_view(call->out[0]);
    int64_t count = lk__ref_count(out.shape);
    const double *dy = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *x = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    const double *y = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    double *dx = lk__ref_new(&scratch, count);
    if (dx) {
        for (int64_t i = 0; i < count; i++)
            dx[i] = dy[i] * ref_activation_slope(attrs, x[i], y[i]);
        lk__ref_store(dx, out);
    }
    return lk__ref_end(&scratch);
}
