/* Updates of all parameters of a device in one call, and the norms they need. */
#ifndef LK_OPS_UPDATE_H
#define LK_OPS_UPDATE_H

#include "core/op.h"
#include "base/status.h"

/* Fused updates: all parameters of a device lie in one flat tensor w [n], f32 or f64, as do their gradients g and what
 * an optimiser remembers; all dense. Each + - * / sqrt is rounded on its own, in the order written here, without fused
 * multiply-adds; attributes are rounded to the dtype first: every device gives the same bits.
 *
 * skip: f32 scalar; where it is not 0 nothing changes. scale: f32 scalar, by which g is multiplied. rates: f64
 * [LK_UPDATE_RATES], what changes from step to step in the place of the attributes of that name, so that a recorded
 * update can be replayed: rate, or Adam's step, unbias and keep. Each may be NULL. In place, not recorded on a tape. */
enum { LK_UPDATE_RATES = 3 };
typedef struct lk_update_control {
    lk_tensor *skip, *scale, *rates;
} lk_update_control;

/* For kernels whose memory is the process's: rates[i], or `otherwise` where there are none. */
double lk__update_rate(const lk_tensor *rates, int i, double otherwise);

/* g = scale g + weight_decay w;  v = momentum v + g;  w = w - rate (nesterov ? g + momentum v : v);  without v:
 * w = w - rate g. */
typedef struct lk_momentum_attrs { /* (w, g, v or NULL, skip, scale, rates) → w, v */
    double rate, momentum, weight_decay;
    bool nesterov;
} lk_momentum_attrs;

lk_status lk__momentum_update(lk_place at, lk_tensor *w, lk_tensor *g, lk_tensor *v, const lk_update_control *control,
                              const lk_momentum_attrs *attrs);

/* g = scale g + weight_decay w;  m = beta1 m + rest1 g;  v = beta2 v + rest2 (g g);
 * w = keep w - (step m) / (sqrt(v unbias) + epsilon). */
typedef struct lk_adam_attrs { /* (w, g, m, v, skip, scale, rates) → w, m, v */
    double beta1, rest1;       /* rest1 = 1 - beta1 */
    double beta2, rest2;
    double step;   /* rate / (1 - beta1^t) */
    double unbias; /* 1 / (1 - beta2^t) */
    double epsilon;
    double weight_decay; /* L2; 0 for AdamW */
    double keep;         /* 1; AdamW: 1 - rate weight_decay */
} lk_adam_attrs;

lk_status lk__adam_update(lk_place at, lk_tensor *w, lk_tensor *g, lk_tensor *m, lk_tensor *v,
                          const lk_update_control *control, const lk_adam_attrs *attrs);

/* Segment i of a flat tensor is [offsets[i], offsets[i + 1]). */
typedef struct lk_update_segments {
    lk_tensor *offsets; /* i64 [n + 1], ascending */
    lk_tensor *ratios;  /* f32 [n]: factors of the rate */
    lk_tensor *adapted; /* f32 [n], 1 or 0: whether the segment is decayed, and has a trust ratio */
} lk_update_segments;

/* In segment i, with l = rate ratios[i] and d = weight_decay adapted[i], rounded once:
 * v = momentum v + l (scale g + d w);  w = w - v. */
typedef struct lk_lars_attrs { /* (w, g, v, offsets, ratios, adapted, skip, scale, rates) → w, v */
    double rate, momentum, weight_decay;
} lk_lars_attrs;

lk_status lk__lars_update(lk_place at, lk_tensor *w, lk_tensor *g, lk_tensor *v, const lk_update_segments *segments,
                          const lk_update_control *control, const lk_lars_attrs *attrs);

/* squared_norms: (x, offsets) → f64 [n], the sum of squares of each segment, in double. An order of its own for any
 * device: a segment is cut into blocks of LK_NORM_BLOCK elements; element e of a block goes to lane e mod
 * LK_NORM_LANES, which adds up its squares in order; the 32 lanes are added as lane j += lane j + h for h = 16, 8, 4,
 * 2, 1, and the blocks as block i += block i + h for h = 1, 2, 4, … and i a multiple of 2 h. The square of a float is
 * exact in double, so it makes no difference there whether squaring and adding are fused, and no finite floats
 * overflow. */
enum { LK_NORM_BLOCK = 4096, LK_NORM_LANES = 32 };

lk_tensor *lk__squared_norms(lk_place at, lk_tensor *x, lk_tensor *offsets);

/* x is [n], f32 or f64, dense. Errors: LK_ERR_DTYPE, LK_ERR_SHAPE, LK_ERR_ARGUMENT. */
lk_status lk__check_flat(const char *op, const char *operand, const lk_tensor *x);

/* What a kernel reads from `offsets`. Errors: LK_ERR_ARGUMENT (segments that descend or leave [0, count)). */
lk_status lk__check_segments(const char *op, const int64_t *offsets, int64_t n, int64_t count);

/* update_scales: (skip, gradients, parameters, adapted, loss; the last three may be NULL) → skip, scale, norm, ratios
 * (with parameters). With G the gradients' squared norms added up as blocks are: norm = sqrt(G).
 * skip:   1 if G or the loss is not finite and skip_nonfinite, or if the skip given is not 0 and sticky; else 0.
 * scale:  clip_norm / norm where norm is finite and above clip_norm > 0; else 1.
 * ratios: trust |w| / (scale |g| + weight_decay |w|) where that is adapted, and both norms are above 0 and finite;
 *         else 1. All in double, rounded to f32 once; scale before it is used in ratios. */
typedef struct lk_update_scales_attrs {
    double clip_norm, trust, weight_decay;
    bool skip_nonfinite, sticky;
} lk_update_scales_attrs;

typedef struct lk_update_norms {
    lk_tensor *skip;                   /* f32 scalar: of the step before */
    lk_tensor *gradients, *parameters; /* f64 [n]: squared_norms; parameters may be NULL */
    lk_tensor *adapted;                /* f32 [n]; NULL without parameters */
    lk_tensor *loss;                   /* f32 scalar, or NULL */
} lk_update_norms;

/* New tensors. skip, scale, ratios: f32; norm: f64. ratios: NULL where the parameters' norms were. */
typedef struct lk_update_scales {
    lk_tensor *skip, *scale, *norm, *ratios;
} lk_update_scales;

lk_status lk__update_scales(lk_place at, const lk_update_norms *norms, const lk_update_scales_attrs *attrs,
                            lk_update_scales *scales);

#endif
