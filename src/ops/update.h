/* The calls that update all parameters of a device at once, and the norms that they need: contracts and attributes. */
#pragma once

#include "base/status.h"
#include "core/op.h"

/* Fused updates. All parameters of a device are one flat tensor w [n], f32 or f64; so are their gradients g and the
 * optimizer's state. All are dense. Each + - * / sqrt is rounded separately, in the order written here, without fused
 * multiply-adds, and attributes are rounded to the dtype first: every device gives the same bits.
 * skip: f32 scalar; if it is not 0, nothing changes. scale: f32 scalar; g is multiplied by it. rates: f64
 * [LK_UPDATE_RATES], replaces the attributes that change from step to step, so that a recorded update can be replayed:
 * rate, or Adam's step, unbias and keep. Each may be NULL. In place, not recorded on a tape. */
enum { LK_UPDATE_RATES = 3 };
typedef struct lk_update_control {
    lk_tensor *skip, *scale, *rates;
} lk_update_control;

/* g = scale g + weight_decay w;  v = momentum v + g;  w = w - rate (nesterov ? g + momentum v : v);  without v:
 * w = w - rate g. */
typedef struct lk_momentum_attrs { /* (w, g, v or NULL, skip, scale, rates) → w, v */
    double rate, momentum, weight_decay;
    bool nesterov;
} lk_momentum_attrs;

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

/* Segment i of a flat tensor is [offsets[i], offsets[i + 1]). */
typedef struct lk_update_segments {
    lk_tensor *offsets; /* i64 [n + 1], ascending; a program may keep the values that it had first */
    lk_tensor *ratios;  /* f32 [n]: factors of the rate */
    lk_tensor *adapted; /* f32 [n], 1 or 0: whether the segment has weight decay and a trust ratio */
} lk_update_segments;

/* In segment i, with l = rate ratios[i] and d = weight_decay adapted[i], rounded once:
 * v = momentum v + l (scale g + d w);  w = w - v.
 * l is the rate where that product is not finite, as with gradients so small that their ratio overflows. */
typedef struct lk_lars_attrs { /* (w, g, v, offsets, ratios, adapted, skip, scale, rates) → w, v */
    double rate, momentum, weight_decay;
} lk_lars_attrs;

/* squared_norms: (x, offsets) → f64 [n], the sum of squares of each segment, in double, in one order on every device: a
 * segment is cut into blocks of LK_NORM_BLOCK elements; element e of a block goes to lane e mod LK_NORM_LANES, which
 * adds up its squares in order; the 32 lanes are added as lane j += lane j + h for h = 16, 8, 4, 2, 1, and the blocks
 * as block i += block i + h for h = 1, 2, 4, … and i a multiple of 2 h. The square of a float is exact in double, so
 * fusing the square and the addition changes nothing, and no finite floats overflow. */
enum { LK_NORM_BLOCK = 4096, LK_NORM_LANES = 32 };

/* update_scales: (skip, gradients, parameters, adapted, loss; the last three may be NULL) → skip, scale, norm, ratios
 * (with parameters). With G the gradients' squared norms, added up like blocks: norm = sqrt(G).
 * skip:   1 if skip_nonfinite and G or the loss is not finite, or if sticky and the given skip is not 0; else 0.
 * scale:  clip_norm / norm if norm is finite and above clip_norm > 0; else 1.
 * ratios: trust |w| / (scale |g| + weight_decay |w|) if the segment is adapted and both norms are above 0 and finite;
 *   else 1. All in double, rounded to f32 once; scale is rounded before it is used in ratios. */
typedef struct lk_update_scales_attrs {
    double clip_norm, trust, weight_decay;
    bool skip_nonfinite, sticky;
} lk_update_scales_attrs;

typedef struct lk_update_norms {
    lk_tensor *skip;                   /* f32 scalar: of the previous step */
    lk_tensor *gradients, *parameters; /* f64 [n]: squared_norms; parameters may be NULL */
    lk_tensor *adapted;                /* f32 [n]; NULL without parameters */
    lk_tensor *loss;                   /* f32 scalar, or NULL */
} lk_update_norms;

/* New tensors. skip, scale, ratios: f32; norm: f64. ratios is NULL if the parameters' norms were. */
typedef struct lk_update_scales {
    lk_tensor *skip, *scale, *norm, *ratios;
} lk_update_scales;
