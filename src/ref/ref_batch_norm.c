/* channel_sums, batch_norm, batch_norm_with and batch_norm_inference; their gradients; the variants that are followed
 * by a residual and relu; batch_norm_update. */
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>
#include <string.h>

/* x: [n, channels, inner] */
typedef struct extent {
    int64_t n, channels, inner;
} extent;

static extent ref_bn_extent(lk_shape x)
{
    return (extent){x.dim[0], x.dim[1], lk__ref_extent(x, 2, x.ndim)};
}

/* Returns the offset of the plane of sample n's channel c, which has `inner` elements. */
static int64_t ref_bn_plane_start(extent e, int64_t n, int64_t c)
{
    return (n * e.channels + c) * e.inner;
}

/* The moments of a channel, which is normalized as xhat = (x - mean) rstd. */
typedef struct moments {
    double mean, variance, rstd;
} moments;

static moments ref_bn_moments(double mean, double variance, double epsilon)
{
    return (moments){mean, variance, 1 / sqrt(variance + epsilon)};
}

/* sums: [2, channels]. Rounding may make the variance negative, which becomes 0; NaN stays NaN. */
static moments ref_bn_moments_of_sums(const double *sums, int64_t channels, int64_t c, const lk_batch_norm_attrs *attrs)
{
    double count = (double)attrs->count, mean = sums[c] / count;
    double variance = sums[channels + c] / count - mean * mean;
    return ref_bn_moments(mean, variance < 0 ? 0 : variance, attrs->epsilon);
}

/* --- channel_sums ------------------------------------------------------------------------------------------------- */

static void ref_bn_channel_sums(const double *x, double *sums, extent e)
{
    for (int64_t c = 0; c < e.channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t n = 0; n < e.n; n++) {
            const double *xs = x + ref_bn_plane_start(e, n, c);
            for (int64_t i = 0; i < e.inner; i++) {
                sum += xs[i];
                squares += xs[i] * xs[i];
            }
        }
        sums[c] = sum;
        sums[e.channels + c] = squares;
    }
}

lk_status lk__ref_channel_sums(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]);
    extent e = ref_bn_extent(in.shape);
    const double *x = lk__ref_load(&scratch, in);
    double *sums = lk__ref_new(&scratch, 2 * e.channels);
    if (sums) {
        ref_bn_channel_sums(x, sums, e);
        lk__ref_store(sums, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_channel_sums_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]);
    extent e = ref_bn_extent(in.shape);
    const double *x = lk__ref_load(&scratch, in);
    const double *dsums = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (dx) {
        for (int64_t p = 0; p < e.n * e.channels; p++) {
            int64_t c = p % e.channels;
            for (int64_t i = p * e.inner; i < (p + 1) * e.inner; i++)
                dx[i] = dsums[c] + 2 * x[i] * dsums[e.channels + c];
        }
        lk__ref_store(dx, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

/* --- normalization ------------------------------------------------------------------------------------------------ */

/* Computes y = gamma xhat + beta for one channel. */
static void ref_bn_normalize_channel(const double *x, double *y, extent e, int64_t c, moments m, double gamma,
                                     double beta)
{
    for (int64_t n = 0; n < e.n; n++) {
        int64_t begin = ref_bn_plane_start(e, n, c);
        for (int64_t i = begin; i < begin + e.inner; i++)
            y[i] = gamma * ((x[i] - m.mean) * m.rstd) + beta;
    }
}

/* The steps after the normalization. */
typedef enum tail { NOTHING, ADD_AND_RELU, RELU_AND_DROP } tail;

/* Stores dropout of relu of y, which is rounded in between. */
static void ref_bn_store_dropped(lk_ref_scratch *scratch, const lk_call *call, double *y)
{
    lk_ref_view out = lk__ref_view(call->out[0]);
    const int64_t *indices = lk__ref_load_int(scratch, lk__ref_view(call->in[3]));
    for (int64_t i = 0, n = lk__ref_count(out.shape); i < n; i++)
        y[i] = y[i] <= 0 ? 0 : lk__ref_rounded(y[i], out.dtype);
    if (indices)
        scratch->status = lk__ref_drop(y, indices, y, (lk_meta){out.dtype, out.shape},
                                       &LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop);
    if (scratch->status == LK_OK)
        lk__ref_store(y, out);
}

/* Stores y, after the residual and relu if these follow. The residual is the call's last input, or NULL. */
static void ref_bn_store_with_tail(lk_ref_scratch *scratch, const lk_call *call, double *y, tail then)
{
    lk_ref_view out = lk__ref_view(call->out[0]);
    const lk_tensor *residual = then == ADD_AND_RELU ? call->in[call->n_in - 1] : NULL;
    const double *r = residual ? lk__ref_load(scratch, lk__ref_view(residual)) : NULL;
    bool last = r && LK_ATTRS(call, lk_batch_norm_attrs)->residual_last;
    for (int64_t i = 0, n = lk__ref_count(out.shape); i < n && then == ADD_AND_RELU; i++) {
        double value = r && !last ? y[i] + r[i] : y[i];
        value = value <= 0 ? 0 : value;
        y[i] = last ? lk__ref_rounded(value, out.dtype) + r[i] : value;
    }
    if (scratch->status == LK_OK)
        lk__ref_store(y, out);
}

/* Normalizes with the sums `given`; if NULL, with x's own sums, which out[1] receives. */
static lk_status ref_bn_normalize_with_sums(lk_call *call, const lk_tensor *given, tail then)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]);
    extent e = ref_bn_extent(in.shape);
    const double *x = lk__ref_load(&scratch, in);
    const double *gamma = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    const double *beta = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    double *own = given ? NULL : lk__ref_new(&scratch, 2 * e.channels);
    const double *sums = given ? lk__ref_load(&scratch, lk__ref_view(given)) : own;
    double *y = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (y) {
        if (!given)
            ref_bn_channel_sums(x, own, e);
        for (int64_t c = 0; c < e.channels; c++) {
            moments m = ref_bn_moments_of_sums(sums, e.channels, c, LK_ATTRS(call, lk_batch_norm_attrs));
            ref_bn_normalize_channel(x, y, e, c, m, gamma[c], beta[c]);
        }
        if (then == RELU_AND_DROP)
            ref_bn_store_dropped(&scratch, call, y);
        else
            ref_bn_store_with_tail(&scratch, call, y, then);
        if (!given && scratch.status == LK_OK)
            lk__ref_store(own, lk__ref_view(call->out[1]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_batch_norm(lk_call *call)
{
    return ref_bn_normalize_with_sums(call, NULL, NOTHING);
}

lk_status lk__ref_batch_norm_act(lk_call *call)
{
    return ref_bn_normalize_with_sums(call, NULL, ADD_AND_RELU);
}

/* `kept` is not used: the gradient draws again. */
lk_status lk__ref_batch_norm_drop(lk_call *call)
{
    lk_ref_view kept = lk__ref_view(call->out[2]);
    memset(kept.data, 0, (size_t)lk__ref_count(kept.shape));
    return ref_bn_normalize_with_sums(call, NULL, RELU_AND_DROP);
}

lk_status lk__ref_batch_norm_with(lk_call *call)
{
    return ref_bn_normalize_with_sums(call, call->in[3], NOTHING);
}

static lk_status ref_bn_normalize_with_statistics(lk_call *call, tail then)
{
    lk_ref_scratch scratch = {0};
    double epsilon = LK_ATTRS(call, lk_batch_norm_attrs)->epsilon;
    lk_ref_view in = lk__ref_view(call->in[0]);
    extent e = ref_bn_extent(in.shape);
    const double *x = lk__ref_load(&scratch, in);
    const double *gamma = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    const double *beta = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    const double *mean = lk__ref_load(&scratch, lk__ref_view(call->in[3]));
    const double *variance = lk__ref_load(&scratch, lk__ref_view(call->in[4]));
    double *y = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (y) {
        for (int64_t c = 0; c < e.channels; c++)
            ref_bn_normalize_channel(x, y, e, c, ref_bn_moments(mean[c], variance[c], epsilon), gamma[c], beta[c]);
        ref_bn_store_with_tail(&scratch, call, y, then);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_batch_norm_inference(lk_call *call)
{
    return ref_bn_normalize_with_statistics(call, NOTHING);
}

lk_status lk__ref_batch_norm_inference_act(lk_call *call)
{
    return ref_bn_normalize_with_statistics(call, ADD_AND_RELU);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* The operands of all gradients: (dy, x, gamma, ...) to dx, dgamma, dbeta, ... */
typedef struct gradients {
    lk_ref_scratch scratch;
    extent e;
    const double *dy, *x, *gamma;
    double *dx, *dgamma, *dbeta;
} gradients;

static void ref_bn_grad_begin(gradients *g, const lk_tensor *dy, const lk_tensor *in, const lk_tensor *gamma)
{
    lk_ref_view x = lk__ref_view(in);
    *g = (gradients){.e = ref_bn_extent(x.shape)};
    g->dy = lk__ref_load(&g->scratch, lk__ref_view(dy));
    g->x = lk__ref_load(&g->scratch, x);
    g->gamma = lk__ref_load(&g->scratch, lk__ref_view(gamma));
    g->dx = lk__ref_new(&g->scratch, lk__ref_count(x.shape));
    g->dgamma = lk__ref_new(&g->scratch, g->e.channels);
    g->dbeta = lk__ref_new(&g->scratch, g->e.channels);
}

/* Writes the sums of d, as it is stored, to output `i` if it is wanted. */
static void ref_bn_grad_store_sums(gradients *g, lk_call *call, const double *d, int i)
{
    bool wanted = i < call->n_out && call->out[i];
    double *sums = wanted ? lk__ref_new(&g->scratch, g->e.channels) : NULL;
    for (int64_t p = 0; sums && p < g->e.n * g->e.channels; p++)
        for (int64_t k = p * g->e.inner; k < (p + 1) * g->e.inner; k++)
            sums[p % g->e.channels] += lk__ref_rounded(d[k], call->out[0]->dtype);
    if (sums)
        lk__ref_store(sums, lk__ref_view(call->out[i]));
}

static void ref_bn_grad_store_sums_of_dx(gradients *g, lk_call *call, int i)
{
    ref_bn_grad_store_sums(g, call, g->dx, i);
}

static lk_status ref_bn_grad_end(gradients *g, lk_call *call)
{
    if (g->scratch.status == LK_OK) {
        lk__ref_store(g->dx, lk__ref_view(call->out[0]));
        lk__ref_store(g->dgamma, lk__ref_view(call->out[1]));
        lk__ref_store(g->dbeta, lk__ref_view(call->out[2]));
    }
    return lk__ref_end(&g->scratch);
}

/* Computes dbeta = Σ dy and dgamma = Σ dy xhat over channel c. */
static void ref_bn_grad_sum_channel(gradients *g, int64_t c, moments m)
{
    for (int64_t n = 0; n < g->e.n; n++) {
        int64_t begin = ref_bn_plane_start(g->e, n, c);
        for (int64_t i = begin; i < begin + g->e.inner; i++) {
            g->dbeta[c] += g->dy[i];
            g->dgamma[c] += g->dy[i] * ((g->x[i] - m.mean) * m.rstd);
        }
    }
}

/* Computes dx = gamma rstd (dy - a - b xhat) in channel c. */
static void ref_bn_grad_channel_dx(gradients *g, int64_t c, moments m, double a, double b)
{
    for (int64_t n = 0; n < g->e.n; n++) {
        int64_t begin = ref_bn_plane_start(g->e, n, c);
        for (int64_t i = begin; i < begin + g->e.inner; i++)
            g->dx[i] = g->gamma[c] * m.rstd * (g->dy[i] - a - b * ((g->x[i] - m.mean) * m.rstd));
    }
}

/* Computes the gradients of a batch that was normalized with its own sums, `given`. */
static void ref_bn_grad_through_own_sums(gradients *g, const lk_call *call, const lk_tensor *given)
{
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    const double *sums = lk__ref_load(&g->scratch, lk__ref_view(given));
    double count = (double)attrs->count;
    for (int64_t c = 0; sums && c < g->e.channels; c++) {
        moments m = ref_bn_moments_of_sums(sums, g->e.channels, c, attrs);
        ref_bn_grad_sum_channel(g, c, m);
        ref_bn_grad_channel_dx(g, c, m, g->dbeta[c] / count, g->dgamma[c] / count);
    }
}

lk_status lk__ref_batch_norm_grad(lk_call *call)
{
    gradients g;
    ref_bn_grad_begin(&g, call->in[0], call->in[1], call->in[2]);
    ref_bn_grad_through_own_sums(&g, call, call->in[3]);
    ref_bn_grad_store_sums_of_dx(&g, call, 3);
    return ref_bn_grad_end(&g, call);
}

/* Returns batch_norm(x). */
static double *ref_bn_grad_normalize_again(gradients *g, const lk_call *call)
{
    const double *sums = lk__ref_load(&g->scratch, lk__ref_view(call->in[4]));
    const double *beta = lk__ref_load(&g->scratch, lk__ref_view(call->in[5]));
    double *y = lk__ref_new(&g->scratch, lk__ref_count(call->in[2]->shape));
    for (int64_t c = 0; y && c < g->e.channels; c++) {
        moments m = ref_bn_moments_of_sums(sums, g->e.channels, c, LK_ATTRS(call, lk_batch_norm_attrs));
        ref_bn_normalize_channel(g->x, y, g->e, c, m, g->gamma[c], beta[c]);
    }
    return y;
}

/* Stores dresidual and its sums. */
static void ref_bn_grad_store_residual(gradients *g, lk_call *call, const double *dresidual)
{
    lk__ref_store(dresidual, lk__ref_view(call->out[3]));
    ref_bn_grad_store_sums(g, call, dresidual, 5);
}

/* Sets dy to what the gradient begins with: dy plus `more`, and then 0 where y is not above 0. Stores dresidual. */
static void ref_bn_grad_mask_dy(gradients *g, lk_call *call)
{
    int64_t n = lk__ref_count(call->in[2]->shape);
    bool beta = call->n_in > 5 && call->in[5], keeps = call->n_out > 3 && call->out[3];
    const double *y =
        call->in[1] ? lk__ref_load(&g->scratch, lk__ref_view(call->in[1])) : ref_bn_grad_normalize_again(g, call);
    const double *more = call->n_in == 7 ? lk__ref_load(&g->scratch, lk__ref_view(call->in[6])) : NULL;
    double *dy = lk__ref_new(&g->scratch, n);
    for (int64_t i = 0; dy && i < n; i++)
        dy[i] = more ? lk__ref_rounded(g->dy[i] + more[i], call->dtype) : g->dy[i];
    if (dy && keeps && beta)
        ref_bn_grad_store_residual(g, call, dy);
    for (int64_t i = 0; dy && i < n; i++)
        dy[i] = lk__ref_rounded(y[i], call->dtype) > 0 ? dy[i] : 0;
    if (dy && keeps && !beta)
        ref_bn_grad_store_residual(g, call, dy);
    g->dy = dy;
}

lk_status lk__ref_batch_norm_act_grad(lk_call *call)
{
    gradients g;
    ref_bn_grad_begin(&g, call->in[0], call->in[2], call->in[3]);
    ref_bn_grad_mask_dy(&g, call);
    if (g.dy)
        ref_bn_grad_through_own_sums(&g, call, call->in[4]);
    ref_bn_grad_store_sums_of_dx(&g, call, 4);
    return ref_bn_grad_end(&g, call);
}

lk_status lk__ref_batch_norm_drop_grad(lk_call *call)
{
    gradients g;
    const lk_dropout_attrs *drop = &LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop;
    ref_bn_grad_begin(&g, call->in[0], call->in[2], call->in[3]);
    const int64_t *indices = lk__ref_load_int(&g.scratch, lk__ref_view(call->in[6]));
    const double *y = ref_bn_grad_normalize_again(&g, call);
    int64_t n = lk__ref_count(call->in[2]->shape);
    double *dy = lk__ref_new(&g.scratch, n);
    if (dy)
        g.scratch.status = lk__ref_drop(g.dy, indices, dy, (lk_meta){call->dtype, call->in[2]->shape}, drop);
    for (int64_t i = 0; dy && i < n && g.scratch.status == LK_OK; i++)
        dy[i] = lk__ref_rounded(y[i], call->dtype) > 0 ? lk__ref_rounded(dy[i], call->dtype) : 0;
    g.dy = dy;
    if (g.scratch.status == LK_OK)
        ref_bn_grad_through_own_sums(&g, call, call->in[4]);
    ref_bn_grad_store_sums_of_dx(&g, call, 3);
    return ref_bn_grad_end(&g, call);
}

/* With n = count, mean = s1 / n and variance = s2 / n - mean^2:
 *   dmean = -gamma rstd Σ dy,  dvariance = -gamma rstd^2 Σ dy xhat / 2,
 *   ds1 = (dmean - 2 mean dvariance) / n,  ds2 = dvariance / n. */
lk_status lk__ref_batch_norm_with_grad(lk_call *call)
{
    gradients g;
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    ref_bn_grad_begin(&g, call->in[0], call->in[1], call->in[2]);
    const double *sums = lk__ref_load(&g.scratch, lk__ref_view(call->in[3]));
    double *dsums = lk__ref_new(&g.scratch, 2 * g.e.channels);
    double count = (double)attrs->count;
    for (int64_t c = 0; dsums && c < g.e.channels; c++) {
        moments m = ref_bn_moments_of_sums(sums, g.e.channels, c, attrs);
        ref_bn_grad_sum_channel(&g, c, m);
        ref_bn_grad_channel_dx(&g, c, m, 0, 0);
        double dmean = -g.gamma[c] * m.rstd * g.dbeta[c];
        double dvariance = -0.5 * g.gamma[c] * m.rstd * m.rstd * g.dgamma[c];
        dsums[c] = (dmean - 2 * m.mean * dvariance) / count;
        dsums[g.e.channels + c] = dvariance / count;
    }
    if (dsums)
        lk__ref_store(dsums, lk__ref_view(call->out[3]));
    return ref_bn_grad_end(&g, call);
}

lk_status lk__ref_batch_norm_inference_grad(lk_call *call)
{
    gradients g;
    double epsilon = LK_ATTRS(call, lk_batch_norm_attrs)->epsilon;
    ref_bn_grad_begin(&g, call->in[0], call->in[1], call->in[2]);
    const double *mean = lk__ref_load(&g.scratch, lk__ref_view(call->in[3]));
    const double *variance = lk__ref_load(&g.scratch, lk__ref_view(call->in[4]));
    for (int64_t c = 0; variance && c < g.e.channels; c++) {
        moments m = ref_bn_moments(mean[c], variance[c], epsilon);
        ref_bn_grad_sum_channel(&g, c, m);
        ref_bn_grad_channel_dx(&g, c, m, 0, 0);
    }
    return ref_bn_grad_end(&g, call);
}

/* --- running statistics ------------------------------------------------------------------------------------------- */

static bool ref_bn_skip_is_set(const lk_tensor *skip)
{
    return *(const float *)lk__ref_view(skip).data != 0;
}

lk_status lk__ref_batch_norm_update(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    if (call->n_in == 4 && ref_bn_skip_is_set(call->in[3]))
        return LK_OK;
    int64_t channels = call->out[0]->shape.dim[0];
    const double *mean = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *variance = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    const double *sums = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    double *new_mean = lk__ref_new(&scratch, channels), *new_variance = lk__ref_new(&scratch, channels);
    if (new_variance) {
        double momentum = attrs->momentum, keep = 1 - momentum;
        double unbiased = attrs->count > 1 ? (double)attrs->count / (double)(attrs->count - 1) : 1;
        for (int64_t c = 0; c < channels; c++) {
            moments m = ref_bn_moments_of_sums(sums, channels, c, attrs);
            /* With nothing to keep, statistics that are not finite are replaced too: 0 * NaN would be NaN. */
            new_mean[c] = (keep == 0 ? 0 : keep * mean[c]) + momentum * m.mean;
            new_variance[c] = (keep == 0 ? 0 : keep * variance[c]) + momentum * (m.variance * unbiased);
        }
        lk__ref_store(new_mean, lk__ref_view(call->out[0]));
        lk__ref_store(new_variance, lk__ref_view(call->out[1]));
    }
    return lk__ref_end(&scratch);
}
