/* The fused optimizer updates, with the same code for f32 and f64. Every operation is computed in double and rounded to
 * the dtype, which for + - * / sqrt of floats gives the bits of the operation in float (Figueroa: "When is double
 * rounding innocuous?", SIGNUM Newsletter 30(3), 1995). */
#include "core/tensor.h"
#include "ops/fused_update.h"
#include "ops/ops.h"
#include "ops/squared_norms.h"
#include "ops/update.h"
#include "ref/ref.h"

#include <math.h>

static inline double ref_update_round(double value, bool single)
{
    return single ? (double)(float)value : value;
}

static inline double ref_update_get(const void *data, int64_t i, bool single)
{
    return single ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static inline void ref_update_put(void *data, int64_t i, double value, bool single)
{
    if (single)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

/* Returns a b + c d, with each operation rounded. */
static inline double ref_update_blend(double a, double b, double c, double d, bool single)
{
    return ref_update_round(ref_update_round(a * b, single) + ref_update_round(c * d, single), single);
}

static void *ref_update_data_or_null(const lk_tensor *tensor)
{
    return tensor ? lk__data(tensor) : NULL;
}

static bool ref_update_is_skipped(const lk_tensor *skip)
{
    return skip && *(const float *)lk__data(skip) != 0;
}

static double ref_update_gradient_scale(const lk_tensor *scale)
{
    return scale ? (double)*(const float *)lk__data(scale) : 1;
}

/* --- momentum ----------------------------------------------------------------------------------------------------- */

typedef struct momentum {
    void *w, *v;
    const void *g;
    double rate, momentum, weight_decay, scale;
    bool nesterov;
} momentum;

static inline void ref_momentum_loop(const momentum *u, int64_t count, bool single)
{
    for (int64_t i = 0; i < count; i++) {
        double w = ref_update_get(u->w, i, single);
        double g = ref_update_blend(u->scale, ref_update_get(u->g, i, single), u->weight_decay, w, single);
        double direction = g;
        if (u->v) {
            double v =
                ref_update_round(ref_update_round(u->momentum * ref_update_get(u->v, i, single), single) + g, single);
            ref_update_put(u->v, i, v, single);
            direction = u->nesterov ? ref_update_round(g + ref_update_round(u->momentum * v, single), single) : v;
        }
        ref_update_put(u->w, i, ref_update_round(w - ref_update_round(u->rate * direction, single), single), single);
    }
}

lk_status lk__ref_momentum_update(lk_call *call)
{
    const lk_momentum_attrs *attrs = LK_ATTRS(call, lk_momentum_attrs);
    bool single = call->dtype == LK_F32;
    int64_t count = lk_tensor_count(call->in[0]);
    momentum u = {.w = lk__data(call->in[0]),
                  .g = lk__data(call->in[1]),
                  .v = ref_update_data_or_null(call->in[2]),
                  .rate = ref_update_round(lk__update_rate(call->in[5], 0, attrs->rate), single),
                  .momentum = ref_update_round(attrs->momentum, single),
                  .weight_decay = ref_update_round(attrs->weight_decay, single),
                  .scale = ref_update_gradient_scale(call->in[4]),
                  .nesterov = attrs->nesterov};
    if (ref_update_is_skipped(call->in[3]))
        return LK_OK;
    if (single)
        ref_momentum_loop(&u, count, true);
    else
        ref_momentum_loop(&u, count, false);
    return LK_OK;
}

/* --- Adam --------------------------------------------------------------------------------------------------------- */

typedef struct adam {
    void *w, *m, *v;
    const void *g;
    double scale;
    lk_adam_attrs attrs; /* rounded */
} adam;

static inline void ref_adam_loop(const adam *u, int64_t count, bool single)
{
    const lk_adam_attrs *a = &u->attrs;
    for (int64_t i = 0; i < count; i++) {
        double w = ref_update_get(u->w, i, single);
        double g = ref_update_blend(u->scale, ref_update_get(u->g, i, single), a->weight_decay, w, single);
        double m = ref_update_blend(a->beta1, ref_update_get(u->m, i, single), a->rest1, g, single);
        double v = ref_update_blend(a->beta2, ref_update_get(u->v, i, single), a->rest2,
                                    ref_update_round(g * g, single), single);
        double root = ref_update_round(sqrt(ref_update_round(v * a->unbias, single)), single);
        double change = ref_update_round(
            ref_update_round(a->step * m, single) / ref_update_round(root + a->epsilon, single), single);
        ref_update_put(u->m, i, m, single);
        ref_update_put(u->v, i, v, single);
        ref_update_put(u->w, i, ref_update_round(ref_update_round(a->keep * w, single) - change, single), single);
    }
}

static lk_adam_attrs ref_adam_round_attrs(const lk_adam_attrs *attrs, const lk_tensor *rates, bool single)
{
    return (lk_adam_attrs){.beta1 = ref_update_round(attrs->beta1, single),
                           .rest1 = ref_update_round(attrs->rest1, single),
                           .beta2 = ref_update_round(attrs->beta2, single),
                           .rest2 = ref_update_round(attrs->rest2, single),
                           .step = ref_update_round(lk__update_rate(rates, 0, attrs->step), single),
                           .unbias = ref_update_round(lk__update_rate(rates, 1, attrs->unbias), single),
                           .epsilon = ref_update_round(attrs->epsilon, single),
                           .weight_decay = ref_update_round(attrs->weight_decay, single),
                           .keep = ref_update_round(lk__update_rate(rates, 2, attrs->keep), single)};
}

lk_status lk__ref_adam_update(lk_call *call)
{
    bool single = call->dtype == LK_F32;
    int64_t count = lk_tensor_count(call->in[0]);
    adam u = {.w = lk__data(call->in[0]),
              .g = lk__data(call->in[1]),
              .m = lk__data(call->in[2]),
              .v = lk__data(call->in[3]),
              .scale = ref_update_gradient_scale(call->in[5]),
              .attrs = ref_adam_round_attrs(LK_ATTRS(call, lk_adam_attrs), call->in[6], single)};
    if (ref_update_is_skipped(call->in[4]))
        return LK_OK;
    if (single)
        ref_adam_loop(&u, count, true);
    else
        ref_adam_loop(&u, count, false);
    return LK_OK;
}

/* --- LARS --------------------------------------------------------------------------------------------------------- */

typedef struct lars {
    void *w, *v;
    const void *g;
    double momentum, scale;
} lars;

static inline void ref_lars_loop(const lars *u, int64_t begin, int64_t end, double rate, double decay, bool single)
{
    for (int64_t i = begin; i < end; i++) {
        double w = ref_update_get(u->w, i, single);
        double g = ref_update_blend(u->scale, ref_update_get(u->g, i, single), decay, w, single);
        double v = ref_update_blend(u->momentum, ref_update_get(u->v, i, single), rate, g, single);
        ref_update_put(u->v, i, v, single);
        ref_update_put(u->w, i, ref_update_round(w - v, single), single);
    }
}

lk_status lk__ref_lars_update(lk_call *call)
{
    const lk_lars_attrs *attrs = LK_ATTRS(call, lk_lars_attrs);
    bool single = call->dtype == LK_F32;
    int64_t count = lk_tensor_count(call->in[0]), segments = lk_tensor_count(call->in[4]);
    const int64_t *offsets = lk__data(call->in[3]);
    const float *ratios = lk__data(call->in[4]), *adapted = lk__data(call->in[5]);
    lars u = {.w = lk__data(call->in[0]),
              .g = lk__data(call->in[1]),
              .v = lk__data(call->in[2]),
              .momentum = ref_update_round(attrs->momentum, single),
              .scale = ref_update_gradient_scale(call->in[7])};
    LK_TRY(lk__check_segments(call->op->name, offsets, segments, count));
    for (int64_t s = 0; s < segments && !ref_update_is_skipped(call->in[6]); s++) {
        double rate = ref_update_round(lk__update_rate(call->in[8], 0, attrs->rate), single);
        double adapted_rate = ref_update_round(rate * (double)ratios[s], single);
        rate = isfinite(adapted_rate) ? adapted_rate : rate;
        double decay = ref_update_round(ref_update_round(attrs->weight_decay, single) * (double)adapted[s], single);
        if (single)
            ref_lars_loop(&u, offsets[s], offsets[s + 1], rate, decay, true);
        else
            ref_lars_loop(&u, offsets[s], offsets[s + 1], rate, decay, false);
    }
    return LK_OK;
}
