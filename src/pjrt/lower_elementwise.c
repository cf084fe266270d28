/* Arithmetic and activations: operators that compute each element by itself. */
#include "ops/normal.h"
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <math.h>
#include <string.h>

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

/* Truncates; by zero gives 0. The least integer divided by -1 wraps: a is negated instead. */
static lk_hlo lower_divide_integers(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    lk_hlo zero = lk__hlo_integer(l, b.type, 0), one = lk__hlo_integer(l, b.type, 1);
    lk_hlo by_zero = lk__hlo_compare(l, b, "EQ", zero);
    if (b.type == LK_U8)
        return lk__hlo_select(l, by_zero, zero, lk__hlo_div(l, a, lk__hlo_select(l, by_zero, one, b)));
    lk_hlo by_minus_one = lk__hlo_compare(l, b, "EQ", lk__hlo_integer(l, b.type, -1));
    lk_hlo safe = lk__hlo_select(l, lk__hlo_or(l, by_zero, by_minus_one), one, b);
    lk_hlo quotient = lk__hlo_div(l, a, safe);
    quotient = lk__hlo_select(l, by_minus_one, lk__hlo_sub(l, zero, a), quotient);
    return lk__hlo_select(l, by_zero, zero, quotient);
}

/* Divides in f64: a quotient of f32 numbers is never so near to the middle between two of them that an error in the
 * last bits of an f64 matters. */
static lk_hlo lower_divide_floats(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    return lk__hlo_div(l, lk__hlo_convert(l, a, LK_F64), lk__hlo_convert(l, b, LK_F64));
}

void lk__lower_arithmetic(lk_lowering *l, const lk_call *call)
{
    lk_hlo a = lk__hlo_read_float(l, call->in[0]), b = lk__hlo_read_float(l, call->in[1]), y;
    if (call->op->id == LK_OP_ADD)
        y = lk__hlo_add(l, a, b);
    else if (call->op->id == LK_OP_SUB)
        y = lk__hlo_sub(l, a, b);
    else if (call->op->id == LK_OP_MUL)
        y = lk__hlo_rounded_mul(l, a, b);
    else if (lk__dtype_is_float(call->in[0]->dtype))
        y = lower_divide_floats(l, a, b);
    else
        y = lower_divide_integers(l, a, b);
    lk__hlo_write(l, call->out[0], y);
}

static lk_hlo lower_pairwise(lk_lowering *l, lk_tensor *const *x, int n)
{
    if (n == 1)
        return lk__hlo_read(l, x[0]);
    lk_hlo left = lower_pairwise(l, x, n / 2);
    return lk__hlo_add(l, left, lower_pairwise(l, x + n / 2, n / 2));
}

void lk__lower_pairwise_sum(lk_lowering *l, const lk_call *call)
{
    lk__hlo_write(l, call->out[0], lower_pairwise(l, call->in, call->n_in));
}

/* --- relu --------------------------------------------------------------------------------------------------------- */

/* NaN stays NaN. */
lk_hlo lk__hlo_relu(lk_lowering *l, lk_hlo x)
{
    lk_hlo zero = lk__hlo_number(l, x.type, 0);
    return lk__hlo_select(l, lk__hlo_compare(l, x, "LE", zero), zero, x);
}

lk_hlo lk__hlo_where_positive(lk_lowering *l, lk_hlo y, lk_hlo dy)
{
    lk_hlo is_positive = lk__hlo_compare(l, y, "GT", lk__hlo_number(l, y.type, 0));
    return lk__hlo_select(l, is_positive, dy, lk__hlo_number(l, dy.type, 0));
}

void lk__lower_relu(lk_lowering *l, const lk_call *call)
{
    lk__hlo_write(l, call->out[0], lk__hlo_relu(l, lk__hlo_read(l, call->in[0])));
}

void lk__lower_relu_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read(l, call->in[0]), y = lk__hlo_read(l, call->in[1]);
    lk__hlo_write(l, call->out[0], lk__hlo_where_positive(l, y, dy));
}

/* --- activations -------------------------------------------------------------------------------------------------- */

lk_hlo lk__hlo_sigmoid(lk_lowering *l, lk_hlo x)
{
    lk_hlo one = lk__hlo_number(l, x.type, 1);
    return lk__hlo_div(l, one, lk__hlo_add(l, one, lk__hlo_unary(l, "exponential", lk__hlo_unary(l, "negate", x))));
}

lk_hlo lk__hlo_softplus(lk_lowering *l, lk_hlo x)
{
    lk_hlo power = lk__hlo_unary(l, "exponential", lk__hlo_unary(l, "negate", lk__hlo_unary(l, "abs", x)));
    return lk__hlo_add(l, lk__hlo_relu(l, x), lk__hlo_unary(l, "log_plus_one", power));
}

/* Returns the value of the polynomial whose coefficients are given from the highest power down. */
static lk_hlo lower_polynomial(lk_lowering *l, lk_hlo x, const double *coefficients, int n)
{
    lk_hlo sum = lk__hlo_number(l, x.type, coefficients[0]);
    for (int i = 1; i < n; i++)
        sum = lk__hlo_add(l, lk__hlo_mul(l, sum, x), lk__hlo_number(l, x.type, coefficients[i]));
    return sum;
}

/* The standard normal distribution's cumulative distribution function, in f64: see ops/normal.h. */
static lk_hlo lower_normal_cdf(lk_lowering *l, lk_hlo x)
{
    lk_hlo z = lk__hlo_mul(l, lk__hlo_convert(l, x, LK_F64), lk__hlo_number(l, LK_F64, LK_SQRT_HALF));
    lk_hlo size = lk__hlo_unary(l, "abs", z);
    lk_hlo tail = lk__hlo_div(l, lower_polynomial(l, size, lk__erfc_p, LK_ERFC_COEFFICIENTS),
                              lower_polynomial(l, size, lk__erfc_q, LK_ERFC_COEFFICIENTS));
    tail = lk__hlo_mul(l, tail, lk__hlo_unary(l, "exponential", lk__hlo_unary(l, "negate", lk__hlo_mul(l, z, z))));
    tail = lk__hlo_mul(l, tail, lk__hlo_number(l, LK_F64, 0.5));
    /* At infinity the quotient is NaN, and the tail 0. */
    lk_hlo is_far = lk__hlo_compare(l, size, "GT", lk__hlo_number(l, LK_F64, 28));
    tail = lk__hlo_select(l, is_far, lk__hlo_number(l, LK_F64, 0), tail);
    lk_hlo is_above = lk__hlo_compare(l, z, "GT", lk__hlo_number(l, LK_F64, 0));
    return lk__hlo_select(l, is_above, lk__hlo_sub(l, lk__hlo_number(l, LK_F64, 1), tail), tail);
}

static lk_hlo lower_normal_density(lk_lowering *l, lk_hlo x)
{
    lk_hlo power = lk__hlo_mul(l, lk__hlo_mul(l, x, x), lk__hlo_number(l, x.type, -0.5));
    return lk__hlo_mul(l, lk__hlo_unary(l, "exponential", power), lk__hlo_number(l, x.type, LK_SQRT_HALF_PER_PI));
}

/* x > 0 ? yes : no */
static lk_hlo lower_above_zero(lk_lowering *l, lk_hlo x, lk_hlo yes, lk_hlo no)
{
    return lk__hlo_select(l, lk__hlo_compare(l, x, "GT", lk__hlo_number(l, x.type, 0)), yes, no);
}

static lk_hlo lower_activation_value(lk_lowering *l, const lk_activation_attrs *attrs, lk_hlo x)
{
    lk_hlo alpha = lk__hlo_number(l, x.type, attrs->alpha);
    switch (attrs->kind) {
    case LK_ACT_SIGMOID:
        return lk__hlo_sigmoid(l, x);
    case LK_ACT_TANH:
        return lk__hlo_unary(l, "tanh", x);
    case LK_ACT_LEAKY_RELU:
        return lower_above_zero(l, x, x, lk__hlo_mul(l, alpha, x));
    case LK_ACT_ELU:
        return lower_above_zero(l, x, x, lk__hlo_mul(l, alpha, lk__hlo_unary(l, "exponential_minus_one", x)));
    case LK_ACT_SILU:
        return lk__hlo_mul(l, x, lk__hlo_sigmoid(l, x));
    case LK_ACT_GELU:
        return lk__hlo_mul(l, lk__hlo_convert(l, x, LK_F64), lower_normal_cdf(l, x));
    default:
        return lk__hlo_softplus(l, x);
    }
}

static lk_hlo lower_activation_slope(lk_lowering *l, const lk_activation_attrs *attrs, lk_hlo x, lk_hlo y)
{
    lk_hlo one = lk__hlo_number(l, x.type, 1), alpha = lk__hlo_number(l, x.type, attrs->alpha), s, wide;
    switch (attrs->kind) {
    case LK_ACT_SIGMOID:
        return lk__hlo_mul(l, y, lk__hlo_sub(l, one, y));
    case LK_ACT_TANH:
        return lk__hlo_sub(l, one, lk__hlo_mul(l, y, y));
    case LK_ACT_LEAKY_RELU:
        return lower_above_zero(l, x, one, alpha);
    case LK_ACT_ELU:
        return lower_above_zero(l, x, one, lk__hlo_mul(l, alpha, lk__hlo_unary(l, "exponential", x)));
    case LK_ACT_SILU:
        s = lk__hlo_sigmoid(l, x);
        return lk__hlo_mul(l, s, lk__hlo_add(l, one, lk__hlo_mul(l, x, lk__hlo_sub(l, one, s))));
    case LK_ACT_GELU:
        wide = lk__hlo_convert(l, x, LK_F64);
        return lk__hlo_add(l, lower_normal_cdf(l, x), lk__hlo_mul(l, wide, lower_normal_density(l, wide)));
    default:
        return lk__hlo_sigmoid(l, x);
    }
}

void lk__lower_activation(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read_float(l, call->in[0]);
    lk__hlo_write(l, call->out[0], lower_activation_value(l, LK_ATTRS(call, lk_activation_attrs), x));
}

void lk__lower_activation_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), x = lk__hlo_read_float(l, call->in[1]),
           y = lk__hlo_read_float(l, call->in[2]);
    lk_hlo slope = lower_activation_slope(l, LK_ATTRS(call, lk_activation_attrs), x, y);
    lk__hlo_write(l, call->out[0], lk__hlo_mul(l, lk__hlo_convert(l, dy, slope.type), slope));
}
