/* sparse_softmax_cross_entropy, its gradient, in_top_k, and cross_entropy_step, which fuses the three: a row of logits
 * against each label. sigmoid_cross_entropy and its gradient: logits against targets. */
#include "base/status.h"
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>

static lk_status ref_loss_check_labels(const lk_call *call, const int64_t *labels, int64_t n, int64_t classes)
{
    for (int64_t i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            LK_FAIL(LK_ERR_ARGUMENT, "%s: label %lld at index %lld is not in [0, %lld)", call->op->name,
                    (long long)labels[i], (long long)i, (long long)classes);
    return LK_OK;
}

static double ref_loss_row_max(const double *x, int64_t n)
{
    double best = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > best)
            best = x[i];
    return best;
}

/* Returns Σ exp(x - max). y, if not NULL, receives the exponentials. */
static double ref_loss_row_exponentials(const double *x, int64_t n, double max, double *y)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double power = exp(x[i] - max);
        sum += power;
        if (y)
            y[i] = power;
    }
    return sum;
}

static double ref_loss_mean_below_max(const double *x, int64_t n, double max)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] - max;
    return sum / (double)n;
}

/* Returns the loss of a row with maximum `max` and sum of exponentials `sum`. Without smoothing the mean is not
 * computed, since a logit of -infinity next to the label's would contribute 0 times infinity, a NaN. */
static double ref_loss_from_sum(const double *x, int64_t classes, int64_t label, double smoothing, double max,
                                double sum)
{
    double target = x[label] - max;
    if (smoothing > 0)
        target = (1 - smoothing) * target + smoothing * ref_loss_mean_below_max(x, classes, max);
    return log(sum) - target;
}

static double ref_loss_of_row(const double *x, int64_t classes, int64_t label, double smoothing)
{
    double max = ref_loss_row_max(x, classes);
    return ref_loss_from_sum(x, classes, label, smoothing, max, ref_loss_row_exponentials(x, classes, max, NULL));
}

lk_status lk__ref_sparse_softmax_cross_entropy(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_cross_entropy_attrs attrs = *LK_ATTRS(call, lk_cross_entropy_attrs);
    lk_ref_view logits = lk__ref_view(call->in[0]);
    int64_t n = logits.shape.dim[0], classes = logits.shape.dim[1];
    const double *x = lk__ref_load(&scratch, logits);
    const int64_t *labels = lk__ref_load_int(&scratch, lk__ref_view(call->in[1]));
    double *loss = lk__ref_new(&scratch, n);
    if (loss)
        scratch.status = ref_loss_check_labels(call, labels, n, classes);
    if (loss && scratch.status == LK_OK) {
        double total = 0;
        for (int64_t i = 0; i < n; i++)
            total += loss[i] = ref_loss_of_row(x + i * classes, classes, labels[i], attrs.smoothing);
        if (attrs.reduction == LK_REDUCTION_MEAN)
            total /= (double)n;
        lk__ref_store(attrs.reduction == LK_REDUCTION_NONE ? loss : &total, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

/* Computes dx = (softmax(x) - ((1 - smoothing) onehot(label) + smoothing / classes)) dloss. On entry dx holds the
 * exponentials, whose sum is `sum`. */
static void ref_loss_grad_from_sum(int64_t classes, int64_t label, double smoothing, double sum, double dloss,
                                   double *dx)
{
    double others = smoothing / (double)classes;
    for (int64_t c = 0; c < classes; c++)
        dx[c] = (dx[c] / sum - ((1 - smoothing) * (c == label) + others)) * dloss;
}

lk_status lk__ref_sparse_softmax_cross_entropy_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_cross_entropy_attrs attrs = *LK_ATTRS(call, lk_cross_entropy_attrs);
    lk_ref_view logits = lk__ref_view(call->in[1]);
    int64_t n = logits.shape.dim[0], classes = logits.shape.dim[1];
    const double *dloss = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *x = lk__ref_load(&scratch, logits);
    const int64_t *labels = lk__ref_load_int(&scratch, lk__ref_view(call->in[2]));
    double *dx = lk__ref_new(&scratch, n * classes);
    if (dx)
        scratch.status = ref_loss_check_labels(call, labels, n, classes);
    if (dx && scratch.status == LK_OK) {
        double share = attrs.reduction == LK_REDUCTION_MEAN ? 1 / (double)n : 1;
        for (int64_t i = 0; i < n; i++) {
            double d = dloss[attrs.reduction == LK_REDUCTION_NONE ? i : 0] * share;
            const double *row = x + i * classes;
            double sum = ref_loss_row_exponentials(row, classes, ref_loss_row_max(row, classes), dx + i * classes);
            ref_loss_grad_from_sum(classes, labels[i], attrs.smoothing, sum, d, dx + i * classes);
        }
        lk__ref_store(dx, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_sigmoid_cross_entropy(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->out[0]);
    const double *z = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *t = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    double *loss = lk__ref_new(&scratch, lk__ref_count(out.shape));
    if (loss) {
        for (int64_t i = 0, count = lk__ref_count(out.shape); i < count; i++)
            loss[i] = (z[i] > 0 ? z[i] : 0) - z[i] * t[i] + log1p(exp(-fabs(z[i])));
        lk__ref_store(loss, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_sigmoid_cross_entropy_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->out[0]);
    const double *dloss = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *z = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    const double *t = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    double *dz = lk__ref_new(&scratch, lk__ref_count(out.shape));
    if (dz) {
        for (int64_t i = 0, count = lk__ref_count(out.shape); i < count; i++)
            dz[i] = (1 / (1 + exp(-z[i])) - t[i]) * dloss[i];
        lk__ref_store(dz, out);
    }
    return lk__ref_end(&scratch);
}

/* Returns whether a comes before b in the order from greatest to smallest, then by index. NaN is the greatest, as for
 * argmax. */
static bool ref_loss_ranks_before(const double *x, int64_t a, int64_t b)
{
    if (isnan(x[a]) || isnan(x[b]))
        return isnan(x[a]) && (!isnan(x[b]) || a < b);
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

static double ref_loss_row_hit(const double *x, int64_t classes, int64_t label, int k)
{
    int64_t before = 0;
    for (int64_t c = 0; c < classes; c++)
        before += ref_loss_ranks_before(x, c, label);
    return before < k;
}

lk_status lk__ref_in_top_k(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    int k = LK_ATTRS(call, lk_top_k_attrs)->k;
    lk_ref_view logits = lk__ref_view(call->in[0]);
    int64_t n = logits.shape.dim[0], classes = logits.shape.dim[1];
    const double *x = lk__ref_load(&scratch, logits);
    const int64_t *labels = lk__ref_load_int(&scratch, lk__ref_view(call->in[1]));
    double *hits = lk__ref_new(&scratch, n);
    if (hits)
        scratch.status = ref_loss_check_labels(call, labels, n, classes);
    if (hits && scratch.status == LK_OK) {
        for (int64_t i = 0; i < n; i++)
            hits[i] = ref_loss_row_hit(x + i * classes, classes, labels[i], k);
        lk__ref_store(hits, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

/* --- cross_entropy_step ------------------------------------------------------------------------------------------- */

static double ref_loss_and_grad(const double *x, int64_t classes, int64_t label, double smoothing, double dloss,
                                double *dx)
{
    double max = ref_loss_row_max(x, classes), sum = ref_loss_row_exponentials(x, classes, max, dx);
    ref_loss_grad_from_sum(classes, label, smoothing, sum, dloss, dx);
    return ref_loss_from_sum(x, classes, label, smoothing, max, sum);
}

lk_status lk__ref_cross_entropy_step(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_cross_entropy_step_attrs attrs = *LK_ATTRS(call, lk_cross_entropy_step_attrs);
    lk_ref_view logits = lk__ref_view(call->in[1]);
    int64_t n = logits.shape.dim[0], classes = logits.shape.dim[1];
    const double *dloss = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *x = lk__ref_load(&scratch, logits);
    const int64_t *labels = lk__ref_load_int(&scratch, lk__ref_view(call->in[2]));
    double *dx = lk__ref_new(&scratch, n * classes), loss = 0, hits = 0;
    if (dx)
        scratch.status = ref_loss_check_labels(call, labels, n, classes);
    if (dx && scratch.status == LK_OK) {
        for (int64_t i = 0; i < n; i++) {
            const double *row = x + i * classes;
            loss += ref_loss_and_grad(row, classes, labels[i], attrs.smoothing, *dloss, dx + i * classes);
            hits += call->n_out == 3 ? ref_loss_row_hit(row, classes, labels[i], attrs.k) : 0;
        }
        for (int64_t i = 0; i < n * classes && call->in[0]->dtype == LK_F32; i++)
            dx[i] = (double)(float)dx[i];
        lk__ref_store(&loss, lk__ref_view(call->out[0]));
        lk__ref_store(dx, lk__ref_view(call->out[1]));
        if (call->n_out == 3)
            lk__ref_store(&hits, lk__ref_view(call->out[2]));
    }
    return lk__ref_end(&scratch);
}
