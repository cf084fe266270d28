/* Cases of the fused updates and of the norms they need. */
#pragma once

#include "ops/ops.h"
#include "ops/update.h"
#include "testing.h"
#include "ops/fused_update.h"
#include "ops/squared_norms.h"

typedef struct update_parameters {
    int64_t n;
    bool slots, nesterov, decoupled; /* with a momentum; Nesterov's; AdamW */
    bool controlled;                 /* with a skip flag, a scale, and rates */
    double skip;
    bool special; /* gradients that are not all finite */
    float ratio;  /* LARS' factor of a segment's rate; 0: 0.0625 */
} update_parameters;

/* A copy of an operand, which an update may overwrite. */
static inline lk_tensor *own_floats(trial *t, int64_t n, double low, double high)
{
    return lk_copy(floats_between(t, LK_SHAPE(n), low, high), t->device);
}

static inline lk_tensor *gradients_of(trial *t, const update_parameters *p)
{
    return lk_copy(p->special ? specials(t, LK_SHAPE(p->n)) : floats(t, LK_SHAPE(p->n)), t->device);
}

static inline lk_update_control control_of(const trial *t, const update_parameters *p)
{
    static const double rates[LK_UPDATE_RATES] = {0.3, 250, 0.75};
    if (!p->controlled)
        return (lk_update_control){.skip = NULL};
    return (lk_update_control){.skip = lk_full(t->device, LK_F32, LK_SCALAR, p->skip),
                               .scale = lk_full(t->device, LK_F32, LK_SCALAR, 0.375),
                               .rates = lk_tensor_from(t->device, LK_F64, LK_SHAPE(LK_UPDATE_RATES), rates)};
}

static inline void update_scale(trial *t)
{
    t->scale = SCALE_ONE;
    t->terms = 12;
}

static inline lk_tensor *momentum_update_case(trial *t, const void *parameters)
{
    const update_parameters *p = parameters;
    lk_momentum_attrs attrs = {.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = p->nesterov};
    update_scale(t);
    lk_tensor *w = own_floats(t, p->n, -1, 1), *g = gradients_of(t, p);
    lk_tensor *v = p->slots ? own_floats(t, p->n, -1, 1) : NULL;
    lk_update_control control = control_of(t, p);
    if (lk__momentum_update(LK_HERE, w, g, v, &control, &attrs) != LK_OK)
        return NULL;
    return v ? lk_concat((lk_tensor *[]){w, v}, 2, 0) : w;
}

/* The second moment stays away from 0, where division by its root is not smooth. */
static inline lk_tensor *adam_update_case(trial *t, const void *parameters)
{
    const update_parameters *p = parameters;
    lk_adam_attrs attrs = {.beta1 = 0.9, .rest1 = 0.1, .beta2 = 0.999, .rest2 = 0.001, .epsilon = 1e-7};
    attrs.step = 0.01 / 0.271;
    attrs.unbias = 1 / 0.002997;
    attrs.weight_decay = p->decoupled ? 0 : 0.01;
    attrs.keep = p->decoupled ? 1 - 0.01 * 0.1 : 1;
    update_scale(t);
    lk_tensor *w = own_floats(t, p->n, -1, 1), *g = gradients_of(t, p);
    lk_tensor *m = own_floats(t, p->n, -1, 1), *v = own_floats(t, p->n, 0.25, 1);
    lk_update_control control = control_of(t, p);
    if (lk__adam_update(LK_HERE, w, g, m, v, &control, &attrs) != LK_OK)
        return NULL;
    return lk_concat((lk_tensor *[]){w, m, v}, 3, 0);
}

/* Segments of [0, n): one of a single element, an empty one, one of half the elements, the rest. */
enum { CASE_SEGMENTS = 4 };

static inline lk_tensor *offsets_of(const trial *t, int64_t n)
{
    int64_t half = n / 2 / 16 * 16;
    int64_t offsets[CASE_SEGMENTS + 1] = {0, 1, 1, 1 + half, n};
    return lk_tensor_from(t->device, LK_I64, LK_SHAPE(CASE_SEGMENTS + 1), offsets);
}

static inline lk_tensor *adapted_of(const trial *t)
{
    return lk_tensor_from(t->device, LK_F32, LK_SHAPE(CASE_SEGMENTS), (float[]){0, 1, 1, 1});
}

static inline lk_tensor *lars_update_case(trial *t, const void *parameters)
{
    const update_parameters *p = parameters;
    lk_lars_attrs attrs = {.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01};
    update_scale(t);
    lk_tensor *w = own_floats(t, p->n, -1, 1), *g = gradients_of(t, p), *v = own_floats(t, p->n, -1, 1);
    lk_update_segments segments = {.offsets = offsets_of(t, p->n),
                                   .ratios = lk_tensor_from(t->device, LK_F32, LK_SHAPE(CASE_SEGMENTS),
                                                            (float[]){1, 1, p->ratio != 0 ? p->ratio : 0.0625F, 0.4F}),
                                   .adapted = adapted_of(t)};
    lk_update_control control = control_of(t, p);
    if (lk__lars_update(LK_HERE, w, g, v, &segments, &control, &attrs) != LK_OK)
        return NULL;
    return lk_concat((lk_tensor *[]){w, v}, 2, 0);
}

static inline lk_tensor *squared_norms_case(trial *t, const void *parameters)
{
    const update_parameters *p = parameters;
    lk_tensor *x = gradients_of(t, p);
    return lk__squared_norms(LK_HERE, x, offsets_of(t, p->n));
}

typedef enum scales_result { RESULT_SKIP, RESULT_SCALE, RESULT_NORM, RESULT_RATIOS } scales_result;

typedef struct scales_parameters {
    scales_result result;
    double before; /* the flag of the step before */
    double loss;   /* 0: none */
    bool special;
    lk_update_scales_attrs attrs;
} scales_parameters;

static inline lk_tensor *update_scales_case(trial *t, const void *parameters)
{
    const scales_parameters *p = parameters;
    const update_parameters tensor = {.n = 9001, .special = p->special};
    lk_update_scales scales = {.skip = NULL};
    lk_tensor *g = gradients_of(t, &tensor), *w = own_floats(t, tensor.n, -1, 1), *offsets = offsets_of(t, tensor.n);
    lk_update_norms norms = {.skip = lk_full(t->device, LK_F32, LK_SCALAR, p->before),
                             .gradients = lk__squared_norms(LK_HERE, g, offsets)};
    if (p->result == RESULT_RATIOS) {
        norms.parameters = lk__squared_norms(LK_HERE, w, offsets);
        norms.adapted = adapted_of(t);
    }
    if (p->loss != 0)
        norms.loss = lk_full(t->device, LK_F32, LK_SCALAR, p->loss);
    if (lk__update_scales(LK_HERE, &norms, &p->attrs, &scales) != LK_OK)
        return NULL;
    lk_tensor *const results[] = {scales.skip, scales.scale, scales.norm, scales.ratios};
    return results[p->result];
}

#define UPDATE_FLAGS (EXACT | NO_GRADIENT | NO_BF16)

#define UPDATE_CASES(op, run, ...)                                                                             \
    {op, UPDATE_FLAGS, "tail", run, P(update_parameters, .n = 1031, __VA_ARGS__)},                             \
        {op, UPDATE_FLAGS, "one", run, P(update_parameters, .n = 1, __VA_ARGS__)},                             \
        {op, UPDATE_FLAGS, "scaled", run, P(update_parameters, .n = 77, .controlled = true, __VA_ARGS__)},     \
        {op, UPDATE_FLAGS, "skipped", run,                                                                     \
         P(update_parameters, .n = 77, .controlled = true, .skip = 1, .special = true, __VA_ARGS__)},          \
    {                                                                                                          \
        op, UPDATE_FLAGS, "NaN and infinity", run, P(update_parameters, .n = 77, .special = true, __VA_ARGS__) \
    }

#define SCALES_CASES(name, ...)                                                 \
    {LK_OP_UPDATE_SCALES, UPDATE_FLAGS, name ": skip", update_scales_case,      \
     P(scales_parameters, .result = RESULT_SKIP, __VA_ARGS__)},                 \
        {LK_OP_UPDATE_SCALES, UPDATE_FLAGS, name ": scale", update_scales_case, \
         P(scales_parameters, .result = RESULT_SCALE, __VA_ARGS__)},            \
        {LK_OP_UPDATE_SCALES, UPDATE_FLAGS, name ": norm", update_scales_case,  \
         P(scales_parameters, .result = RESULT_NORM, __VA_ARGS__)},             \
    {                                                                           \
        LK_OP_UPDATE_SCALES, UPDATE_FLAGS, name ": ratios", update_scales_case, \
            P(scales_parameters, .result = RESULT_RATIOS, __VA_ARGS__)          \
    }
