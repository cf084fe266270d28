/* squared_norms and update_scales. */
#include "core/tensor.h"
#include "ops/ops.h"
#include "ops/update.h"
#include "ref/ref.h"

#include <math.h>

static double element(const lk_tensor *x, int64_t i)
{
    return x->dtype == LK_F32 ? (double)((const float *)lk__data(x))[i] : ((const double *)lk__data(x))[i];
}

static double block_sum(const lk_tensor *x, int64_t begin, int64_t end)
{
    double lane[LK_NORM_LANES] = {0};
    for (int64_t i = begin; i < end; i++) {
        double value = element(x, i), square = value * value;
        lane[(i - begin) % LK_NORM_LANES] += square;
    }
    for (int h = LK_NORM_LANES / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++)
            lane[j] += lane[j + h];
    return lane[0];
}

/* The sum of part[0 … n), which it changes. */
static double tree_sum(double *part, int64_t n)
{
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t i = 0; i + h < n; i += 2 * h)
            part[i] += part[i + h];
    return n > 0 ? part[0] : 0;
}

lk_status lk__ref_squared_norms(lk_call *call)
{
    const lk_tensor *x = call->in[0];
    const int64_t *offsets = lk__data(call->in[1]);
    int64_t segments = lk_tensor_count(call->out[0]), count = lk_tensor_count(x);
    double *norms = lk__data(call->out[0]);
    LK_TRY(lk__check_segments(call->op->name, offsets, segments, count));

    lk_ref_scratch scratch = {0};
    double *part = lk__ref_new(&scratch, count / LK_NORM_BLOCK + 1);
    for (int64_t s = 0; part && s < segments; s++) {
        int64_t n = 0, end = offsets[s + 1];
        for (int64_t i = offsets[s]; i < end; i += LK_NORM_BLOCK)
            part[n++] = block_sum(x, i, end - i < LK_NORM_BLOCK ? end : i + LK_NORM_BLOCK);
        norms[s] = tree_sum(part, n);
    }
    return lk__ref_end(&scratch);
}

/* --- update_scales ------------------------------------------------------------------------------------------------ */

/* Of a segment whose squared norms are w2 and g2. */
static double trust_ratio(const lk_update_scales_attrs *attrs, double w2, double g2, double scale)
{
    double w = sqrt(w2), g = scale * sqrt(g2);
    double ratio = attrs->trust * w / (g + attrs->weight_decay * w);
    return w > 0 && g > 0 && isfinite(w) && isfinite(g) ? ratio : 1;
}

lk_status lk__ref_update_scales(lk_call *call)
{
    const lk_update_scales_attrs *attrs = LK_ATTRS(call, lk_update_scales_attrs);
    const double *g2 = lk__data(call->in[1]);
    int64_t n = lk_tensor_count(call->in[1]);
    lk_ref_scratch scratch = {0};
    double *part = lk__ref_new(&scratch, n);
    if (!part)
        return lk__ref_end(&scratch);
    for (int64_t i = 0; i < n; i++)
        part[i] = g2[i];
    double norm = sqrt(tree_sum(part, n));
    bool skip = attrs->sticky && *(const float *)lk__data(call->in[0]) != 0;
    skip = skip || (attrs->skip_nonfinite && !isfinite(norm));
    bool clip = attrs->clip_norm > 0 && isfinite(norm) && norm > attrs->clip_norm;
    float scale = clip ? (float)(attrs->clip_norm / norm) : 1;
    *(float *)lk__data(call->out[0]) = skip ? 1 : 0;
    *(float *)lk__data(call->out[1]) = scale;
    *(double *)lk__data(call->out[2]) = norm;
    if (call->n_out > 3) {
        const double *w2 = lk__data(call->in[2]);
        const float *adapted = lk__data(call->in[3]);
        float *ratios = lk__data(call->out[3]);
        for (int64_t i = 0; i < n; i++)
            ratios[i] = adapted[i] != 0 ? (float)trust_ratio(attrs, w2[i], g2[i], (double)scale) : 1;
    }
    return lk__ref_end(&scratch);
}
