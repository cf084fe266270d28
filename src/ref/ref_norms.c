/* squared_norms and update_scales. */
#include "core/tensor.h"
#include "ops/ops.h"
#include "ops/squared_norms.h"
#include "ops/update.h"
#include "ref/ref.h"

#include <math.h>

static double ref_norms_element(const lk_tensor *x, int64_t i)
{
    return x->dtype == LK_F32 ? (double)((const float *)lk__data(x))[i] : ((const double *)lk__data(x))[i];
}

static double ref_norms_block_sum(const lk_tensor *x, int64_t begin, int64_t end)
{
    double lane[LK_NORM_LANES] = {0};
    for (int64_t i = begin; i < end; i++) {
        double value = ref_norms_element(x, i), square = value * value;
        lane[(i - begin) % LK_NORM_LANES] += square;
    }
    for (int h = LK_NORM_LANES / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++)
            lane[j] += lane[j + h];
    return lane[0];
}

/* Returns the largest power of two below n, where the first half of a tree over n > 1 leaves ends. */
static int64_t ref_norms_half(int64_t n)
{
    int64_t half = 1;
    while (half * 2 < n)
        half *= 2;
    return half;
}

static double ref_norms_segment_sum(const lk_tensor *x, int64_t begin, int64_t end)
{
    int64_t blocks = (end - begin + LK_NORM_BLOCK - 1) / LK_NORM_BLOCK;
    if (blocks < 2)
        return ref_norms_block_sum(x, begin, end);
    int64_t middle = begin + ref_norms_half(blocks) * LK_NORM_BLOCK;
    return ref_norms_segment_sum(x, begin, middle) + ref_norms_segment_sum(x, middle, end);
}

lk_status lk__ref_squared_norms(lk_call *call)
{
    const lk_tensor *x = call->in[0];
    const int64_t *offsets = lk__data(call->in[1]);
    int64_t segments = lk_tensor_count(call->out[0]);
    double *norms = lk__data(call->out[0]);
    LK_TRY(lk__check_segments(call->op->name, offsets, segments, lk_tensor_count(x)));
    for (int64_t s = 0; s < segments; s++)
        norms[s] = ref_norms_segment_sum(x, offsets[s], offsets[s + 1]);
    return LK_OK;
}

/* --- update_scales ------------------------------------------------------------------------------------------------ */

static double ref_norms_tree_sum(const double *x, int64_t n)
{
    if (n < 2)
        return n > 0 ? x[0] : 0;
    return ref_norms_tree_sum(x, ref_norms_half(n)) + ref_norms_tree_sum(x + ref_norms_half(n), n - ref_norms_half(n));
}

/* Returns LARS' trust ratio of a segment with squared norms w2 and g2. */
static double ref_norms_trust_ratio(const lk_update_scales_attrs *attrs, double w2, double g2, double scale)
{
    double w = sqrt(w2), g = scale * sqrt(g2);
    double ratio = attrs->trust * w / (g + attrs->weight_decay * w);
    return w > 0 && g > 0 && isfinite(w) && isfinite(g) ? ratio : 1;
}

static bool ref_norms_loss_is_finite(const lk_tensor *loss)
{
    return !loss || isfinite(*(const float *)lk__data(loss));
}

lk_status lk__ref_update_scales(lk_call *call)
{
    const lk_update_scales_attrs *attrs = LK_ATTRS(call, lk_update_scales_attrs);
    const double *g2 = lk__data(call->in[1]);
    int64_t n = lk_tensor_count(call->in[1]);
    double norm = sqrt(ref_norms_tree_sum(g2, n));
    bool skip = attrs->sticky && *(const float *)lk__data(call->in[0]) != 0;
    skip = skip || (attrs->skip_nonfinite && !(isfinite(norm) && ref_norms_loss_is_finite(call->in[4])));
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
            ratios[i] = adapted[i] != 0 ? (float)ref_norms_trust_ratio(attrs, w2[i], g2[i], (double)scale) : 1;
    }
    return LK_OK;
}
