/* One step: gradients into their flat tensor, their norms where anything asks for them, one fused update. */
#include "core/tensor.h"
#include "lockstep/ops.h"
#include "ops/update.h"
#include "optim/optimizer.h"

#include <math.h>

typedef struct step {
    lk_place at;
    lk_optimizer *optimizer;
    lk_tensor *loss; /* NULL: not looked at */
    double rate;
    double power1, power2; /* beta1^t, beta2^t */
    lk_update_scales scales;
    lk_update_control control;
} step;

/* Powers by repeated multiplication: pow() differs from one C library to another. */
static step step_of(lk_place at, lk_optimizer *optimizer, double rate)
{
    return (step){.at = at,
                  .optimizer = optimizer,
                  .rate = rate,
                  .power1 = optimizer->power1 * optimizer->opts.beta1,
                  .power2 = optimizer->power2 * optimizer->opts.beta2};
}

static lk_status check_rate(double rate)
{
    if (!isfinite(rate))
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: rate is %g; it must be finite", rate);
    return LK_OK;
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static lk_status check_gradient(const lk_optimizer *o, int i, const lk_tensor *g)
{
    const lk_tensor *w = o->parameters[i];
    char have[128], want[128];
    if (!g)
        return LK_OK;
    if (g->dtype != LK_F32)
        LK_FAIL(LK_ERR_DTYPE, "optimizer: gradient %d is %s; it must be f32", i, lk_dtype_name(g->dtype));
    if (!lk__shape_equal(g->shape, w->shape)) {
        lk__shape_text(g->shape, have, sizeof have);
        lk__shape_text(w->shape, want, sizeof want);
        LK_FAIL(LK_ERR_SHAPE, "optimizer: gradient %d has shape %s; its parameter has %s", i, have, want);
    }
    if (lk_tensor_device(g) != lk_tensor_device(w))
        LK_FAIL(LK_ERR_DEVICE, "optimizer: gradient %d is on %s; its parameter is on %s", i,
                lk_device_name(lk_tensor_device(g)), lk_device_name(lk_tensor_device(w)));
    return LK_OK;
}

static lk_status take_gradient(step *s, int i, lk_tensor *g)
{
    lk_optimizer *o = s->optimizer;
    if (!g && o->zeroed[i])
        return LK_OK;
    o->zeroed[i] = false;
    if (g)
        return lk_copy_into_at(s->at, o->slices[i], g);
    lk_tensor *zeros = lk_expand_at(s->at, o->zero, o->slices[i]->shape);
    if (!zeros)
        return lk_error_status();
    LK_TRY(lk_copy_into_at(s->at, o->slices[i], zeros));
    o->zeroed[i] = true;
    return LK_OK;
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

static bool needs_norms(const lk_optimizer_opts *opts)
{
    return opts->kind == LK_LARS || opts->clip_norm > 0 || opts->skip_nonfinite;
}

static lk_status find_scales(step *s)
{
    lk_optimizer *o = s->optimizer;
    const lk_optimizer_opts *opts = &o->opts;
    lk_update_scales_attrs attrs = {.clip_norm = opts->clip_norm,
                                    .trust = opts->trust,
                                    .weight_decay = opts->weight_decay,
                                    .skip_nonfinite = opts->skip_nonfinite,
                                    .sticky = opts->sticky};
    lk_update_norms norms = {.skip = o->skip ? o->skip : o->zero,
                             .gradients = lk__squared_norms(s->at, o->gradients, o->offsets),
                             .loss = s->loss};
    if (opts->kind == LK_LARS) {
        norms.parameters = lk__squared_norms(s->at, o->flat, o->offsets);
        norms.adapted = o->adapted;
        if (!norms.parameters)
            return lk_error_status();
    }
    if (!norms.gradients)
        return lk_error_status();
    LK_TRY(lk__update_scales(s->at, &norms, &attrs, &s->scales));
    s->control.skip = opts->skip_nonfinite ? s->scales.skip : NULL;
    s->control.scale = opts->clip_norm > 0 ? s->scales.scale : NULL;
    return LK_OK;
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

static lk_status update_sgd(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    lk_momentum_attrs attrs = {.rate = s->rate,
                               .momentum = o->opts.momentum,
                               .weight_decay = o->opts.weight_decay,
                               .nesterov = o->opts.nesterov};
    return lk__momentum_update(s->at, o->flat, o->gradients, o->slots[0], &s->control, &attrs);
}

static bool is_adam(const lk_optimizer_opts *opts)
{
    return opts->kind == LK_ADAM || opts->kind == LK_ADAMW;
}

static lk_adam_attrs adam_of(const step *s)
{
    const lk_optimizer_opts *opts = &s->optimizer->opts;
    bool decoupled = opts->kind == LK_ADAMW;
    return (lk_adam_attrs){.beta1 = opts->beta1,
                           .rest1 = 1 - opts->beta1,
                           .beta2 = opts->beta2,
                           .rest2 = 1 - opts->beta2,
                           .step = s->rate / (1 - s->power1),
                           .unbias = 1 / (1 - s->power2),
                           .epsilon = opts->epsilon,
                           .weight_decay = decoupled ? 0 : opts->weight_decay,
                           .keep = decoupled ? 1 - s->rate * opts->weight_decay : 1};
}

static lk_status update_adam(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    lk_adam_attrs attrs = adam_of(s);
    return lk__adam_update(s->at, o->flat, o->gradients, o->slots[0], o->slots[1], &s->control, &attrs);
}

static lk_status update_lars(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    lk_lars_attrs attrs = {.rate = s->rate, .momentum = o->opts.momentum, .weight_decay = o->opts.weight_decay};
    lk_update_segments segments = {.offsets = o->offsets, .ratios = s->scales.ratios, .adapted = o->adapted};
    return lk__lars_update(s->at, o->flat, o->gradients, o->slots[0], &segments, &s->control, &attrs);
}

static lk_status update(const step *s)
{
    switch (s->optimizer->opts.kind) {
    case LK_ADAM:
    case LK_ADAMW:
        return update_adam(s);
    case LK_LARS:
        return update_lars(s);
    default:
        return update_sgd(s);
    }
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static lk_status run(step *s, lk_tensor *const *gradients)
{
    lk_optimizer *o = s->optimizer;
    for (int i = 0; i < o->n; i++)
        LK_TRY(check_gradient(o, i, gradients[i]));
    for (int i = 0; i < o->n; i++)
        LK_TRY(take_gradient(s, i, gradients[i]));
    if (needs_norms(&o->opts))
        LK_TRY(find_scales(s));
    return update(s);
}

static void keep_result(lk_tensor *made, lk_tensor **kept)
{
    lk_tensor_retain(made);
    lk_tensor_release(*kept);
    *kept = made;
}

/* Where they are: a recorded step reads the flag of the one before there. */
static lk_status write_results(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    if (!s->scales.skip)
        return LK_OK;
    LK_TRY(lk_copy_into_at(s->at, o->skip, s->scales.skip));
    return lk_copy_into_at(s->at, o->norm, s->scales.norm);
}

static void count_step(const step *s)
{
    lk_optimizer *o = s->optimizer;
    o->steps++;
    o->has_gradients = true;
    o->power1 = s->power1;
    o->power2 = s->power2;
}

/* Once the update is pushed nothing can fail any more: a step is taken as a whole or not at all. */
static lk_status finish(const step *s)
{
    lk_optimizer *o = s->optimizer;
    count_step(s);
    if (o->is_recorded)
        return write_results(s);
    keep_result(s->scales.skip, &o->skip);
    keep_result(s->scales.norm, &o->norm);
    return LK_OK;
}

lk_status lk__optimizer_step(lk_place at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                             double rate)
{
    step s = step_of(at, optimizer, rate);
    s.loss = loss;
    LK_TRY(check_rate(rate));
    lk_recorder recorder = lk__recorder_set((lk_recorder){.self = NULL});
    lk_scope_begin();
    lk_status status = run(&s, gradients);
    if (status == LK_OK)
        status = finish(&s);
    lk_scope_end();
    lk__recorder_set(recorder);
    return status;
}

lk_status lk_optimizer_step_at(lk_place at, lk_optimizer *optimizer, lk_tensor *const *gradients, double rate)
{
    return lk__optimizer_step(at, optimizer, gradients, NULL, rate);
}

/* --- a step in a program ------------------------------------------------------------------------------------------ */

static lk_status keep_or_make(lk_device *device, lk_dtype dtype, lk_tensor **kept)
{
    if (*kept)
        return LK_OK;
    *kept = lk_tensor_retain(lk_zeros(device, dtype, LK_SCALAR));
    return *kept ? LK_OK : lk_error_status();
}

lk_status lk__optimizer_prepare_recording(lk_optimizer *optimizer)
{
    lk_device *device = lk_tensor_device(optimizer->flat);
    lk_status status = LK_OK;
    lk_scope_begin();
    if (needs_norms(&optimizer->opts)) {
        status = keep_or_make(device, LK_F32, &optimizer->skip);
        if (status == LK_OK)
            status = keep_or_make(device, LK_F64, &optimizer->norm);
    }
    lk_scope_end();
    optimizer->is_recorded = status == LK_OK;
    return status;
}

lk_status lk__optimizer_record(lk_place at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                               lk_tensor *rates)
{
    step s = step_of(at, optimizer, 0);
    s.loss = loss;
    s.control.rates = rates;
    LK_TRY(run(&s, gradients));
    return write_results(&s);
}

lk_status lk__optimizer_rates(lk_optimizer *optimizer, double rate, double values[])
{
    step s = step_of(LK_HERE, optimizer, rate);
    LK_TRY(check_rate(rate));
    lk_adam_attrs adam = adam_of(&s);
    values[0] = is_adam(&optimizer->opts) ? adam.step : rate;
    values[1] = adam.unbias;
    values[2] = adam.keep;
    return LK_OK;
}

void lk__optimizer_resume(lk_optimizer *optimizer, int64_t steps)
{
    double power1 = 0, power2 = 0;
    optimizer->steps = 0;
    optimizer->power1 = optimizer->power2 = 1;
    /* As multiplications that came one by one have rounded them, up to where they change no more. */
    while (optimizer->steps < steps && (optimizer->power1 != power1 || optimizer->power2 != power2)) {
        power1 = optimizer->power1;
        power2 = optimizer->power2;
        lk__optimizer_replayed(optimizer);
    }
    optimizer->steps = steps;
    optimizer->has_gradients = false;
}

void lk__optimizer_replayed(lk_optimizer *optimizer)
{
    step s = step_of(LK_HERE, optimizer, 0);
    count_step(&s);
}
