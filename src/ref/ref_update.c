/* The fused updates, in one piece of code for f32 and f64: every operation is done in double and rounded to the dtype,
 * which for + - * / sqrt of floats gives what the operation gives in float (Figueroa: "When is double rounding
 * innocuous?", SIGNUM Newsletter 30(3), 1995). */
#include "core/tensor.h"
#include "ops/ops.h"
#include "ops/update.h"
#include "ref/ref.h"

#include <math.h>

static inline double rounded(double value, bool single)
{
    return single ? (double)(float)value : value;
}

static inline double get(const void *data, int64_t i, bool single)
{
    return single ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static inline void put(void *data, int64_t i, double value, bool single)
{
    if (single)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

/* a b + c d, each operation rounded. */
static inline double blend(double a, double b, double c, double d, bool single)
{
    return rounded(rounded(a * b, single) + rounded(c * d, single), single);
}

static void *data_of(const lk_tensor *tensor)
{
    return tensor ? lk__data(tensor) : NULL;
}

static bool is_skipped(const lk_tensor *skip)
{
    return skip && *(const float *)lk__data(skip) != 0;
}

static double scale_of(const lk_tensor *scale)
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

static inline void update_momentum(const momentum *u, int64_t count, bool single)
{
    for (int64_t i = 0; i < count; i++) {
        double w = get(u->w, i, single);
        double g = blend(u->scale, get(u->g, i, single), u->weight_decay, w, single);
        double direction = g;
        if (u->v) {
            double v = rounded(rounded(u->momentum * get(u->v, i, single), single) + g, single);
            put(u->v, i, v, single);
            direction = u->nesterov ? rounded(g + rounded(u->momentum * v, single), single) : v;
        }
        put(u->w, i, rounded(w - rounded(u->rate * direction, single), single), single);
    }
}

lk_status lk__ref_momentum_update(lk_call *call)
{
    const lk_momentum_attrs *attrs = LK_ATTRS(call, lk_momentum_attrs);
    bool single = call->dtype == LK_F32;
    int64_t count = lk_tensor_count(call->in[0]);
    momentum u = {.w = lk__data(call->in[0]),
                  .g = lk__data(call->in[1]),
                  .v = data_of(call->in[2]),
                  .rate = rounded(lk__update_rate(call->in[5], 0, attrs->rate), single),
                  .momentum = rounded(attrs->momentum, single),
                  .weight_decay = rounded(attrs->weight_decay, single),
                  .scale = scale_of(call->in[4]),
                  .nesterov = attrs->nesterov};
    if (is_skipped(call->in[3]))
        return LK_OK;
    if (single)
        update_momentum(&u, count, true);
    else
        update_momentum(&u, count, false);
    return LK_OK;
}

/* --- Adam --------------------------------------------------------------------------------------------------------- */

typedef struct adam {
    void *w, *m, *v;
    const void *g;
    double scale;
    lk_adam_attrs attrs; /* rounded */
} adam;

static inline void update_adam(const adam *u, int64_t count, bool single)
{
    const lk_adam_attrs *a = &u->attrs;
    for (int64_t i = 0; i < count; i++) {
        double w = get(u->w, i, single);
        double g = blend(u->scale, get(u->g, i, single), a->weight_decay, w, single);
        double m = blend(a->beta1, get(u->m, i, single), a->rest1, g, single);
        double v = blend(a->beta2, get(u->v, i, single), a->rest2, rounded(g * g, single), single);
        double root = rounded(sqrt(rounded(v * a->unbias, single)), single);
        double change = rounded(rounded(a->step * m, single) / rounded(root + a->epsilon, single), single);
        put(u->m, i, m, single);
        put(u->v, i, v, single);
        put(u->w, i, rounded(rounded(a->keep * w, single) - change, single), single);
    }
}

static lk_adam_attrs rounded_adam(const lk_adam_attrs *attrs, const lk_tensor *rates, bool single)
{
    return (lk_adam_attrs){.beta1 = rounded(attrs->beta1, single),
                           .rest1 = rounded(attrs->rest1, single),
                           .beta2 = rounded(attrs->beta2, single),
                           .rest2 = rounded(attrs->rest2, single),
                           .step = rounded(lk__update_rate(rates, 0, attrs->step), single),
                           .unbias = rounded(lk__update_rate(rates, 1, attrs->unbias), single),
                           .epsilon = rounded(attrs->epsilon, single),
                           .weight_decay = rounded(attrs->weight_decay, single),
                           .keep = rounded(lk__update_rate(rates, 2, attrs->keep), single)};
}

lk_status lk__ref_adam_update(lk_call *call)
{
    bool single = call->dtype == LK_F32;
    int64_t count = lk_tensor_count(call->in[0]);
    adam u = {.w = lk__data(call->in[0]),
              .g = lk__data(call->in[1]),
              .m = lk__data(call->in[2]),
              .v = lk__data(call->in[3]),
              .scale = scale_of(call->in[5]),
              .attrs = rounded_adam(LK_ATTRS(call, lk_adam_attrs), call->in[6], single)};
    if (is_skipped(call->in[4]))
        return LK_OK;
    if (single)
        update_adam(&u, count, true);
    else
        update_adam(&u, count, false);
    return LK_OK;
}

/* --- LARS --------------------------------------------------------------------------------------------------------- */

typedef struct lars {
    void *w, *v;
    const void *g;
    double momentum, scale;
} lars;

static inline void update_lars(const lars *u, int64_t begin, int64_t end, double rate, double decay, bool single)
{
    for (int64_t i = begin; i < end; i++) {
        double w = get(u->w, i, single);
        double g = blend(u->scale, get(u->g, i, single), decay, w, single);
        double v = blend(u->momentum, get(u->v, i, single), rate, g, single);
        put(u->v, i, v, single);
        put(u->w, i, rounded(w - v, single), single);
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
              .momentum = rounded(attrs->momentum, single),
              .scale = scale_of(call->in[7])};
    LK_TRY(lk__check_segments(call->op->name, offsets, segments, count));
    for (int64_t s = 0; s < segments && !is_skipped(call->in[6]); s++) {
        double rate =
            rounded(rounded(lk__update_rate(call->in[8], 0, attrs->rate), single) * (double)ratios[s], single);
        double decay = rounded(rounded(attrs->weight_decay, single) * (double)adapted[s], single);
        if (single)
            update_lars(&u, offsets[s], offsets[s + 1], rate, decay, true);
        else
            update_lars(&u, offsets[s], offsets[s + 1], rate, decay, false);
    }
    return LK_OK;
}
