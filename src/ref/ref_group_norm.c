/* group_norm and its gradient. */
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>

/* x: [samples, groups, channels, pixels]. A set is the elements that share a mean and a variance: those of `channels`
 * neighboring channels and `span` neighboring pixels of a sample. */
typedef struct frame {
    int64_t samples, groups, channels, pixels, span;
    double epsilon;
} frame;

static frame ref_gn_frame(lk_shape x, const lk_group_norm_opts *opts)
{
    int64_t pixels = lk__ref_extent(x, 2, x.ndim);
    return (frame){.samples = x.dim[0],
                   .groups = opts->groups,
                   .channels = x.dim[1] / opts->groups,
                   .pixels = pixels,
                   .span = opts->each_pixel ? 1 : pixels,
                   .epsilon = opts->epsilon};
}

typedef struct set {
    int64_t begin;   /* its first element */
    int64_t channel; /* its first channel */
    double mean, inverse;
} set;

/* Returns the set that begins at pixel `pixel` of a group, with its moments. */
static set ref_gn_set(const double *x, const frame *f, int64_t sample, int64_t group, int64_t pixel)
{
    int64_t first = group * f->channels, count = f->channels * f->span;
    set s = {.begin = (sample * f->groups * f->channels + first) * f->pixels + pixel, .channel = first};
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < f->channels; c++)
        for (int64_t i = 0; i < f->span; i++)
            sum += x[s.begin + c * f->pixels + i];
    s.mean = sum / (double)count;
    for (int64_t c = 0; c < f->channels; c++)
        for (int64_t i = 0; i < f->span; i++) {
            double centered = x[s.begin + c * f->pixels + i] - s.mean;
            squares += centered * centered;
        }
    s.inverse = 1 / sqrt(squares / (double)count + f->epsilon);
    return s;
}

static void ref_gn_normalize(const double *x, const double *gamma, const double *beta, double *y, const frame *f, set s)
{
    for (int64_t c = 0; c < f->channels; c++)
        for (int64_t i = 0; i < f->span; i++) {
            int64_t at = s.begin + c * f->pixels + i;
            y[at] = gamma[s.channel + c] * ((x[at] - s.mean) * s.inverse) + beta[s.channel + c];
        }
}

lk_status lk__ref_group_norm(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]);
    const frame f = ref_gn_frame(in.shape, LK_ATTRS(call, lk_group_norm_opts));
    const double *x = lk__ref_load(&scratch, in);
    const double *gamma = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    const double *beta = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    double *y = lk__ref_new(&scratch, lk__ref_count(in.shape));
    for (int64_t n = 0; y && n < f.samples; n++)
        for (int64_t g = 0; g < f.groups; g++)
            for (int64_t p = 0; p < f.pixels; p += f.span)
                ref_gn_normalize(x, gamma, beta, y, &f, ref_gn_set(x, &f, n, g, p));
    if (y)
        lk__ref_store(y, lk__ref_view(call->out[0]));
    return lk__ref_end(&scratch);
}

/* With xhat = (x - mean) inverse and means over the set:
 *   dx = inverse (gamma dy - mean(gamma dy) - xhat mean(gamma dy xhat)),  dgamma = Σ dy xhat,  dbeta = Σ dy. */
static void ref_gn_set_gradient(const double *dy, const double *x, const double *gamma, const frame *f, set s,
                                double *dx, double *dgamma, double *dbeta)
{
    double sum = 0, product = 0, count = (double)(f->channels * f->span);
    for (int64_t c = 0; c < f->channels; c++)
        for (int64_t i = 0; i < f->span; i++) {
            int64_t at = s.begin + c * f->pixels + i;
            double xhat = (x[at] - s.mean) * s.inverse;
            sum += gamma[s.channel + c] * dy[at];
            product += gamma[s.channel + c] * dy[at] * xhat;
            dgamma[s.channel + c] += dy[at] * xhat;
            dbeta[s.channel + c] += dy[at];
        }
    for (int64_t c = 0; c < f->channels; c++)
        for (int64_t i = 0; i < f->span; i++) {
            int64_t at = s.begin + c * f->pixels + i;
            double xhat = (x[at] - s.mean) * s.inverse;
            dx[at] = s.inverse * (gamma[s.channel + c] * dy[at] - sum / count - xhat * (product / count));
        }
}

lk_status lk__ref_group_norm_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[1]);
    const frame f = ref_gn_frame(in.shape, LK_ATTRS(call, lk_group_norm_opts));
    const double *dy = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *x = lk__ref_load(&scratch, in);
    const double *gamma = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    double *dgamma = lk__ref_new(&scratch, in.shape.dim[1]), *dbeta = lk__ref_new(&scratch, in.shape.dim[1]);
    for (int64_t n = 0; dbeta && n < f.samples; n++)
        for (int64_t g = 0; g < f.groups; g++)
            for (int64_t p = 0; p < f.pixels; p += f.span)
                ref_gn_set_gradient(dy, x, gamma, &f, ref_gn_set(x, &f, n, g, p), dx, dgamma, dbeta);
    if (dbeta) {
        lk__ref_store(dx, lk__ref_view(call->out[0]));
        lk__ref_store(dgamma, lk__ref_view(call->out[1]));
        lk__ref_store(dbeta, lk__ref_view(call->out[2]));
    }
    return lk__ref_end(&scratch);
}
