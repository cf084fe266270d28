/* Group normalization. Sums are computed in f64, and an element in its own type, as its distance from the mean rounded
 * to that type, so that the difference is exact where it matters. */
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

/* x as [N, groups, channels of a group, pixels]. */
static lk_hlo lower_gn_split(lk_lowering *l, const lk_tensor *x, int64_t groups)
{
    int64_t pixels = 1, channels = x->shape.dim[1] / groups;
    for (int i = 2; i < x->shape.ndim; i++)
        pixels *= x->shape.dim[i];
    return lk__hlo_reshape(l, lk__hlo_read_float(l, x), 4, (int64_t[]){x->shape.dim[0], groups, channels, pixels});
}

/* A vector [C] repeated like x, in its type. */
static lk_hlo lower_gn_channels(lk_lowering *l, const lk_tensor *vector, lk_hlo x)
{
    lk_hlo value = lk__hlo_convert(l, lk__hlo_read(l, vector), x.type);
    return lk__hlo_broadcast(l, lk__hlo_reshape(l, value, 2, &x.size[1]), x, (int[]){1, 2});
}

/* A value of each set, [N, groups, 1, 1 or pixels], repeated like x, in its type. */
static lk_hlo lower_gn_spread(lk_lowering *l, lk_hlo value, lk_hlo x)
{
    return lk__hlo_broadcast(l, lk__hlo_convert(l, value, x.type), x, (int[]){0, 1, 2, 3});
}

/* The mean over each set, f64. */
static lk_hlo lower_gn_mean(lk_lowering *l, lk_hlo x, const lk_group_norm_opts *opts)
{
    const unsigned channels = 1u << 2, pixels = 1u << 3;
    int64_t count = x.size[2] * (opts->each_pixel ? 1 : x.size[3]);
    lk_hlo sum =
        lk__hlo_reduce_keep(l, "add", lk__hlo_convert(l, x, LK_F64), opts->each_pixel ? channels : channels | pixels);
    return lk__hlo_div(l, sum, lk__hlo_number(l, LK_F64, count > 0 ? (double)count : 1));
}

typedef struct normalized {
    lk_hlo xhat, inverse; /* inverse: 1 / sqrt(variance + epsilon) of each set, f64 */
} normalized;

static normalized lower_gn_normalize(lk_lowering *l, lk_hlo x, const lk_group_norm_opts *opts)
{
    lk_hlo mean = lower_gn_mean(l, x, opts), origin = lk__hlo_convert(l, lk__hlo_convert(l, mean, x.type), LK_F64);
    lk_hlo centered = lk__hlo_sub(l, x, lower_gn_spread(l, origin, x)), rest = lk__hlo_sub(l, mean, origin);
    lk_hlo wide = lk__hlo_convert(l, centered, LK_F64);
    lk_hlo variance = lower_gn_mean(l, lk__hlo_mul(l, wide, wide), opts); /* about the origin */
    variance = lk__hlo_sub(l, variance, lk__hlo_rounded_mul(l, rest, rest));
    lk_hlo zero = lk__hlo_number(l, LK_F64, 0);
    variance = lk__hlo_select(l, lk__hlo_compare(l, variance, "LT", zero), zero, variance);
    lk_hlo root = lk__hlo_unary(l, "sqrt", lk__hlo_add(l, variance, lk__hlo_number(l, LK_F64, opts->epsilon)));
    lk_hlo inverse = lk__hlo_div(l, lk__hlo_number(l, LK_F64, 1), root);
    lk_hlo scaled = lk__hlo_mul(l, centered, lower_gn_spread(l, inverse, x));
    lk_hlo shift = lower_gn_spread(l, lk__hlo_mul(l, rest, inverse), x);
    return (normalized){lk__hlo_sub(l, scaled, shift), inverse};
}

void lk__lower_group_norm(lk_lowering *l, const lk_call *call)
{
    const lk_group_norm_opts *opts = LK_ATTRS(call, lk_group_norm_opts);
    lk_hlo x = lower_gn_split(l, call->in[0], opts->groups);
    lk_hlo scaled = lk__hlo_mul(l, lower_gn_normalize(l, x, opts).xhat, lower_gn_channels(l, call->in[1], x));
    lk__hlo_write(l, call->out[0], lk__hlo_add(l, scaled, lower_gn_channels(l, call->in[2], x)));
}

/* The sum over samples and pixels of each channel, f64. */
static lk_hlo lower_gn_channel_sums(lk_lowering *l, lk_hlo x)
{
    return lk__hlo_reduce(l, "add", lk__hlo_convert(l, x, LK_F64), 1u << 0 | 1u << 3);
}

/* dx = inverse (gamma dy - mean(gamma dy) - xhat mean(gamma dy xhat)), dgamma = Σ dy xhat, dbeta = Σ dy. */
void lk__lower_group_norm_grad(lk_lowering *l, const lk_call *call)
{
    const lk_group_norm_opts *opts = LK_ATTRS(call, lk_group_norm_opts);
    lk_hlo dy = lower_gn_split(l, call->in[0], opts->groups), x = lower_gn_split(l, call->in[1], opts->groups);
    normalized n = lower_gn_normalize(l, x, opts);
    lk_hlo scaled = lk__hlo_mul(l, dy, lower_gn_channels(l, call->in[2], x));
    lk_hlo slope = lower_gn_spread(l, lower_gn_mean(l, lk__hlo_mul(l, scaled, n.xhat), opts), x);
    lk_hlo dx = lk__hlo_sub(l, scaled, lower_gn_spread(l, lower_gn_mean(l, scaled, opts), x));
    dx = lk__hlo_sub(l, dx, lk__hlo_mul(l, n.xhat, slope));
    lk__hlo_write(l, call->out[0], lk__hlo_mul(l, dx, lower_gn_spread(l, n.inverse, x)));
    lk__hlo_write(l, call->out[1], lower_gn_channel_sums(l, lk__hlo_mul(l, dy, n.xhat)));
    lk__hlo_write(l, call->out[2], lower_gn_channel_sums(l, dy));
}
