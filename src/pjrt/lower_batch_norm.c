/* Batch normalization. What a channel has once is computed in f64, and so are sums over a channel. An element is
 * computed in its own type, as scale (x - origin) + shift: the origin is the mean rounded to that type, so that the
 * difference is exact where it matters, and the shift contains what the rounding left. */
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <limits.h>
#include <string.h>

/* [C] f64 each. */
typedef struct moments {
    lk_hlo mean, variance, inverse; /* inverse: 1 / sqrt(variance + epsilon) */
} moments;

static lk_hlo lower_channels_f64(lk_lowering *l, const lk_tensor *x)
{
    return lk__hlo_convert(l, lk__hlo_read(l, x), LK_F64);
}

/* All axes but that of the channels, bit by bit. */
static unsigned lower_channels_others(int rank)
{
    return ((1u << rank) - 1) & ~2u;
}

/* Repeats a vector [C] over images like x, in x's type. */
static lk_hlo lower_channels_spread(lk_lowering *l, lk_hlo vector, lk_hlo x)
{
    return lk__hlo_broadcast(l, lk__hlo_convert(l, vector, x.type), x, (int[]){1});
}

static moments lower_moments(lk_lowering *l, lk_hlo mean, lk_hlo variance, double epsilon)
{
    lk_hlo root = lk__hlo_unary(l, "sqrt", lk__hlo_add(l, variance, lk__hlo_number(l, LK_F64, epsilon)));
    return (moments){mean, variance, lk__hlo_div(l, lk__hlo_number(l, LK_F64, 1), root)};
}

/* sums: [2, C]. Rounding may make the variance negative, which becomes 0; NaN stays NaN. */
static moments lower_moments_of_sums(lk_lowering *l, lk_hlo sums, const lk_batch_norm_attrs *attrs)
{
    int64_t channels = sums.size[1];
    lk_hlo count = lk__hlo_number(l, LK_F64, (double)attrs->count), zero = lk__hlo_number(l, LK_F64, 0);
    lk_hlo first = lk__hlo_reshape(l, lk__hlo_slice_axis(l, sums, 0, 0, 1), 1, &channels);
    lk_hlo second = lk__hlo_reshape(l, lk__hlo_slice_axis(l, sums, 0, 1, 2), 1, &channels);
    lk_hlo mean = lk__hlo_div(l, first, count);
    lk_hlo variance = lk__hlo_sub(l, lk__hlo_div(l, second, count), lk__hlo_rounded_mul(l, mean, mean));
    variance = lk__hlo_select(l, lk__hlo_compare(l, variance, "LT", zero), zero, variance);
    return lower_moments(l, mean, variance, attrs->epsilon);
}

/* [2, C] from two vectors. */
static lk_hlo lower_channels_stack(lk_lowering *l, lk_hlo first, lk_hlo second)
{
    int64_t row[] = {1, first.size[0]};
    lk_hlo rows[] = {lk__hlo_reshape(l, first, 2, row), lk__hlo_reshape(l, second, 2, row)};
    return lk__hlo_concat(l, rows, 2, 0);
}

/* The sum over each channel of a b, whose product is exact in f64; with `b` NULL of a. */
static lk_hlo lower_channels_sum(lk_lowering *l, lk_hlo a, const lk_hlo *b)
{
    lk_hlo wide = lk__hlo_convert(l, a, LK_F64);
    if (b)
        wide = lk__hlo_mul(l, wide, lk__hlo_convert(l, *b, LK_F64));
    return lk__hlo_reduce(l, "add", wide, lower_channels_others(a.rank));
}

static lk_hlo lower_channel_sums(lk_lowering *l, lk_hlo x)
{
    lk_hlo sum = lower_channels_sum(l, x, NULL);
    return lower_channels_stack(l, sum, lower_channels_sum(l, x, &x));
}

void lk__lower_channel_sums(lk_lowering *l, const lk_call *call)
{
    lk__hlo_write(l, call->out[0], lower_channel_sums(l, lk__hlo_read(l, call->in[0])));
}

/* dx = dsums[0] + 2 x dsums[1] */
void lk__lower_channel_sums_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read_float(l, call->in[0]), dsums = lk__hlo_read(l, call->in[1]);
    int64_t channels = dsums.size[1];
    lk_hlo first = lk__hlo_reshape(l, lk__hlo_slice_axis(l, dsums, 0, 0, 1), 1, &channels);
    lk_hlo second = lk__hlo_reshape(l, lk__hlo_slice_axis(l, dsums, 0, 1, 2), 1, &channels);
    second = lk__hlo_mul(l, second, lk__hlo_number(l, LK_F64, 2));
    lk_hlo slope = lk__hlo_mul(l, x, lower_channels_spread(l, second, x));
    lk__hlo_write(l, call->out[0], lk__hlo_add(l, slope, lower_channels_spread(l, first, x)));
}

/* --- normalization ------------------------------------------------------------------------------------------------ */

/* The mean as an element's type has it, in f64. */
static lk_hlo lower_origin(lk_lowering *l, lk_hlo mean, int type)
{
    return lk__hlo_convert(l, lk__hlo_convert(l, mean, type), LK_F64);
}

/* Returns scale (x - origin) + shift. */
static lk_hlo lower_scale(lk_lowering *l, lk_hlo x, lk_hlo scale, lk_hlo origin, lk_hlo shift)
{
    lk_hlo centered = lk__hlo_sub(l, x, lower_channels_spread(l, origin, x));
    lk_hlo scaled = lk__hlo_mul(l, centered, lower_channels_spread(l, scale, x));
    return lk__hlo_add(l, scaled, lower_channels_spread(l, shift, x));
}

/* Returns y as a tensor of that dtype would have it. */
static lk_hlo lower_rounded(lk_lowering *l, lk_hlo y, lk_dtype dtype)
{
    return lk__hlo_convert(l, lk__hlo_convert(l, y, (int)dtype), y.type);
}

/* Returns y = gamma (x - mean) inverse + beta. */
static lk_hlo lower_affine(lk_lowering *l, lk_hlo x, const lk_tensor *of_gamma, const lk_tensor *of_beta, moments m)
{
    lk_hlo gamma = lower_channels_f64(l, of_gamma), beta = lower_channels_f64(l, of_beta);
    lk_hlo scale = lk__hlo_mul(l, gamma, m.inverse), origin = lower_origin(l, m.mean, x.type);
    lk_hlo rest = lk__hlo_sub(l, m.mean, origin);
    return lower_scale(l, x, scale, origin, lk__hlo_sub(l, beta, lk__hlo_mul(l, rest, scale)));
}

/* Writes y = gamma (x - mean) inverse + beta, after the residual and relu if the operator has them: the last input. */
static void lower_normalize(lk_lowering *l, const lk_call *call, moments m)
{
    bool has_act = call->op->id == LK_OP_BATCH_NORM_ACT || call->op->id == LK_OP_BATCH_NORM_INFERENCE_ACT;
    lk_hlo y = lower_affine(l, lk__hlo_read_float(l, call->in[0]), call->in[1], call->in[2], m);
    const lk_tensor *residual = has_act ? call->in[call->n_in - 1] : NULL;
    bool last = residual && LK_ATTRS(call, lk_batch_norm_attrs)->residual_last;
    if (last)
        y = lower_rounded(l, lk__hlo_relu(l, y), call->dtype);
    if (residual)
        y = lk__hlo_add(l, y, lk__hlo_read_float(l, residual));
    lk__hlo_write(l, call->out[0], has_act && !last ? lk__hlo_relu(l, y) : y);
}

void lk__lower_batch_norm(lk_lowering *l, const lk_call *call)
{
    lk_hlo sums = lower_channel_sums(l, lk__hlo_read(l, call->in[0]));
    lower_normalize(l, call, lower_moments_of_sums(l, sums, LK_ATTRS(call, lk_batch_norm_attrs)));
    lk__hlo_write(l, call->out[1], sums);
}

void lk__lower_batch_norm_with(lk_lowering *l, const lk_call *call)
{
    lk_hlo sums = lk__hlo_read(l, call->in[3]);
    lower_normalize(l, call, lower_moments_of_sums(l, sums, LK_ATTRS(call, lk_batch_norm_attrs)));
}

void lk__lower_batch_norm_inference(lk_lowering *l, const lk_call *call)
{
    lk_hlo mean = lower_channels_f64(l, call->in[3]), variance = lower_channels_f64(l, call->in[4]);
    lower_normalize(l, call, lower_moments(l, mean, variance, LK_ATTRS(call, lk_batch_norm_attrs)->epsilon));
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* The values that the gradients of one batch share: operands, and sums over each channel. */
typedef struct gradients {
    lk_hlo dy, x, scale; /* scale: gamma inverse */
    lk_hlo dgamma, dbeta;
    moments m;
} gradients;

/* dbeta = Σ dy and dgamma = Σ dy (x - mean) inverse = (Σ dy x - mean Σ dy) inverse. */
static gradients lower_gradients(lk_lowering *l, const lk_tensor *gamma, lk_hlo dy, lk_hlo x, moments m)
{
    gradients g = {.dy = dy, .x = x, .m = m};
    g.scale = lk__hlo_mul(l, lower_channels_f64(l, gamma), m.inverse);
    g.dbeta = lower_channels_sum(l, dy, NULL);
    lk_hlo products = lower_channels_sum(l, dy, &x);
    g.dgamma = lk__hlo_mul(l, lk__hlo_sub(l, products, lk__hlo_mul(l, m.mean, g.dbeta)), m.inverse);
    if (lk__hlo_count(&x) == 0) /* then there is no mean */
        g.dgamma = g.dbeta;
    return g;
}

/* Gradients of operators with sums of their own have the sums of dx as their last output, if it is wanted. */
static void lower_gradients_write(lk_lowering *l, const lk_call *call, const gradients *g, lk_hlo dx)
{
    bool third = call->op->id == LK_OP_BATCH_NORM_GRAD || call->op->id == LK_OP_BATCH_NORM_DROP_GRAD;
    int sums = third ? 3 : call->op->id == LK_OP_BATCH_NORM_ACT_GRAD ? 4 : INT_MAX;
    if (sums < call->n_out)
        lk__hlo_write(l, call->out[sums], lower_channels_sum(l, lower_rounded(l, dx, call->dtype), NULL));
    lk__hlo_write(l, call->out[0], dx);
    lk__hlo_write(l, call->out[1], g->dgamma);
    lk__hlo_write(l, call->out[2], g->dbeta);
}

/* dx = scale dy, for statistics that do not depend on x. */
static lk_hlo lower_gradients_direct(lk_lowering *l, const gradients *g)
{
    return lk__hlo_mul(l, g->dy, lower_channels_spread(l, g->scale, g->dy));
}

/* dx = scale (dy - dbeta / count - (x - mean) inverse dgamma / count), for a batch that was normalized with its own
 * sums. */
static void lower_gradients_through_sums(lk_lowering *l, const lk_call *call, lk_hlo dy, const lk_tensor *x,
                                         const lk_tensor *gamma, const lk_tensor *given)
{
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    moments m = lower_moments_of_sums(l, lk__hlo_read(l, given), attrs);
    gradients g = lower_gradients(l, gamma, dy, lk__hlo_read_float(l, x), m);
    lk_hlo share = lk__hlo_div(l, g.scale, lk__hlo_number(l, LK_F64, (double)attrs->count));
    lk_hlo slope = lk__hlo_unary(l, "negate", lk__hlo_mul(l, lk__hlo_mul(l, share, m.inverse), g.dgamma));
    lk_hlo origin = lower_origin(l, m.mean, g.x.type), rest = lk__hlo_sub(l, m.mean, origin);
    lk_hlo shift = lk__hlo_add(l, lk__hlo_mul(l, share, g.dbeta), lk__hlo_mul(l, slope, rest));
    lk_hlo through = lower_scale(l, g.x, slope, origin, lk__hlo_unary(l, "negate", shift));
    lower_gradients_write(l, call, &g, lk__hlo_add(l, lower_gradients_direct(l, &g), through));
}

void lk__lower_batch_norm_grad(lk_lowering *l, const lk_call *call)
{
    lower_gradients_through_sums(l, call, lk__hlo_read_float(l, call->in[0]), call->in[1], call->in[2], call->in[3]);
}

void lk__lower_batch_norm_act_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), y;
    bool beta = call->n_in > 5 && call->in[5];
    if (call->n_in == 7)
        dy = lower_rounded(l, lk__hlo_add(l, dy, lk__hlo_read_float(l, call->in[6])), call->dtype);
    if (call->in[1]) {
        y = lk__hlo_read(l, call->in[1]);
    } else {
        moments m = lower_moments_of_sums(l, lk__hlo_read(l, call->in[4]), LK_ATTRS(call, lk_batch_norm_attrs));
        y = lower_affine(l, lk__hlo_read_float(l, call->in[2]), call->in[3], call->in[5], m);
        y = lower_rounded(l, y, call->dtype);
    }
    lk_hlo masked = lk__hlo_where_positive(l, y, dy);
    lower_gradients_through_sums(l, call, masked, call->in[2], call->in[3], call->in[4]);
    if (call->n_out > 3 && call->out[3])
        lk__hlo_write(l, call->out[3], beta ? dy : masked);
    if (call->n_out > 5)
        lk__hlo_write(l, call->out[5], lower_channels_sum(l, dy, NULL));
}

/* relu(batch_norm(x)), rounded. */
static lk_hlo lower_rectified(lk_lowering *l, const lk_call *call, lk_hlo sums, const lk_tensor *x,
                              const lk_tensor *gamma, const lk_tensor *beta)
{
    moments m = lower_moments_of_sums(l, sums, LK_ATTRS(call, lk_batch_norm_attrs));
    lk_hlo y = lower_affine(l, lk__hlo_read_float(l, x), gamma, beta, m);
    return lower_rounded(l, lk__hlo_relu(l, y), call->dtype);
}

/* `kept` is not used: the gradient draws again. */
void lk__lower_batch_norm_drop(lk_lowering *l, const lk_call *call)
{
    lk_hlo sums = lower_channel_sums(l, lk__hlo_read(l, call->in[0])), indices = lk__hlo_read(l, call->in[3]);
    lk_hlo y = lower_rectified(l, call, sums, call->in[0], call->in[1], call->in[2]);
    lk_hlo kept = {.type = LK_U8, .rank = call->out[2]->shape.ndim};
    memcpy(kept.size, call->out[2]->shape.dim, (size_t)kept.rank * sizeof *kept.size);
    lk__hlo_write(l, call->out[0], lk__hlo_dropout(l, y, indices, &LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop));
    lk__hlo_write(l, call->out[1], sums);
    lk__hlo_write(l, call->out[2], lk__hlo_fill(l, lk__hlo_integer(l, LK_U8, 0), kept));
}

void lk__lower_batch_norm_drop_grad(lk_lowering *l, const lk_call *call)
{
    const lk_dropout_attrs *drop = &LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop;
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]);
    lk_hlo dropped = lk__hlo_dropout(l, dy, lk__hlo_read(l, call->in[6]), drop);
    dropped = lk__hlo_convert(l, lk__hlo_convert(l, dropped, (int)call->dtype), dy.type);
    lk_hlo sums = lk__hlo_read(l, call->in[4]);
    lk_hlo y = lower_rectified(l, call, sums, call->in[2], call->in[3], call->in[5]);
    lower_gradients_through_sums(l, call, lk__hlo_where_positive(l, y, dropped), call->in[2], call->in[3], call->in[4]);
}

/* With n = count, mean = s1 / n and variance = s2 / n - mean^2:
 *   dmean = -scale dbeta,  dvariance = -scale inverse dgamma / 2,
 *   ds1 = (dmean - 2 mean dvariance) / n,  ds2 = dvariance / n. */
void lk__lower_batch_norm_with_grad(lk_lowering *l, const lk_call *call)
{
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), x = lk__hlo_read_float(l, call->in[1]);
    moments m = lower_moments_of_sums(l, lk__hlo_read(l, call->in[3]), attrs);
    gradients g = lower_gradients(l, call->in[2], dy, x, m);
    lk_hlo count = lk__hlo_number(l, LK_F64, (double)attrs->count);
    lk_hlo dmean = lk__hlo_unary(l, "negate", lk__hlo_mul(l, g.scale, g.dbeta));
    lk_hlo dvariance = lk__hlo_mul(l, lk__hlo_mul(l, g.scale, m.inverse), g.dgamma);
    dvariance = lk__hlo_mul(l, dvariance, lk__hlo_number(l, LK_F64, -0.5));
    lk_hlo twice = lk__hlo_mul(l, lk__hlo_mul(l, m.mean, dvariance), lk__hlo_number(l, LK_F64, 2));
    lk_hlo first = lk__hlo_div(l, lk__hlo_sub(l, dmean, twice), count), second = lk__hlo_div(l, dvariance, count);
    lower_gradients_write(l, call, &g, lower_gradients_direct(l, &g));
    lk__hlo_write(l, call->out[3], lower_channels_stack(l, first, second));
}

void lk__lower_batch_norm_inference_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), x = lk__hlo_read_float(l, call->in[1]);
    lk_hlo mean = lower_channels_f64(l, call->in[3]), variance = lower_channels_f64(l, call->in[4]);
    moments m = lower_moments(l, mean, variance, LK_ATTRS(call, lk_batch_norm_attrs)->epsilon);
    gradients g = lower_gradients(l, call->in[2], dy, x, m);
    lower_gradients_write(l, call, &g, lower_gradients_direct(l, &g));
}

/* --- running statistics ------------------------------------------------------------------------------------------- */

/* keep a + momentum b; with nothing to keep b, also where a is not finite */
static lk_hlo lower_moving_average(lk_lowering *l, lk_hlo a, lk_hlo b, double momentum)
{
    if (momentum == 1)
        return b;
    lk_hlo kept = lk__hlo_rounded_mul(l, lk__hlo_number(l, LK_F64, 1 - momentum), a);
    return lk__hlo_add(l, kept, lk__hlo_rounded_mul(l, lk__hlo_number(l, LK_F64, momentum), b));
}

void lk__lower_batch_norm_update(lk_lowering *l, const lk_call *call)
{
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    lk_hlo mean = lk__hlo_read(l, call->in[0]), variance = lk__hlo_read(l, call->in[1]);
    moments m = lower_moments_of_sums(l, lk__hlo_read(l, call->in[2]), attrs);
    double unbiased = attrs->count > 1 ? (double)attrs->count / (double)(attrs->count - 1) : 1;
    lk_hlo spread = lk__hlo_mul(l, m.variance, lk__hlo_number(l, LK_F64, unbiased));
    lk_hlo new_mean = lower_moving_average(l, lk__hlo_convert(l, mean, LK_F64), m.mean, attrs->momentum);
    lk_hlo new_variance = lower_moving_average(l, lk__hlo_convert(l, variance, LK_F64), spread, attrs->momentum);
    new_mean = lk__hlo_convert(l, new_mean, mean.type);
    new_variance = lk__hlo_convert(l, new_variance, variance.type);
    lk_tensor *skip = call->n_in == 4 ? call->in[3] : NULL;
    lk__hlo_write(l, call->out[0], lk__hlo_unless_skipped(l, skip, new_mean, mean));
    lk__hlo_write(l, call->out[1], lk__hlo_unless_skipped(l, skip, new_variance, variance));
}
