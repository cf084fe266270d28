/* One step: copies the gradients into their packed tensor, computes norms if anything needs them, and makes one fused
 * update. */
#include "optim/optimizer_step.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/fused_update.h"
#include "ops/squared_norms.h"
#include "ops/update.h"
#include "optim/optimizer.h"
#include "optim/optimizer_opts.h"
#include "lockstep/ops.h"

#include <math.h>

typedef struct step {
    lk_call_site at;
    lk_optimizer *optimizer;
    lk_tensor *loss; /* NULL: not checked */
    double rate;
    double power1, power2; /* beta1^t, beta2^t */
    lk_update_scales scales;
    lk_update_control control;
    lk_tensor *average_rates; /* of a recorded step; else NULL */
} step;

/* Powers are computed by repeated multiplication, because pow() differs from one C library to another. */
static step step_new(lk_call_site at, lk_optimizer *optimizer, double rate)
{
    return (step){.at = at,
                  .optimizer = optimizer,
                  .rate = rate,
                  .power1 = optimizer->power1 * optimizer->opts.beta1,
                  .power2 = optimizer->power2 * optimizer->opts.beta2};
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static lk_status step_check_gradient(const lk_optimizer *o, int i, const lk_tensor *g)
{
    const lk_tensor *w = o->parameters[i];
    if (!g)
        return LK_OK;
    if (g->dtype != LK_F32)
        LK_FAIL(LK_ERR_DTYPE, "optimizer: gradient %d is %s; it must be f32", i, lk_dtype_name(g->dtype));
    if (!lk__shape_equal(g->shape, w->shape))
        LK_FAIL(LK_ERR_SHAPE, "optimizer: gradient %d has shape %s; its parameter has %s", i, lk__text(g->shape).string,
                lk__text(w->shape).string);
    if (lk_tensor_device(g) != lk_tensor_device(w))
        LK_FAIL(LK_ERR_DEVICE, "optimizer: gradient %d is on %s; its parameter is on %s", i,
                lk_device_name(lk_tensor_device(g)), lk_device_name(lk_tensor_device(w)));
    if (g->storage == o->gradients->storage && !lk__tensor_same_view(g, o->slices[i]))
        LK_FAIL(
            LK_ERR_ARGUMENT,
            "optimizer: gradient %d is another view of the optimizer's own memory than lk_optimizer_gradients gives",
            i);
    return LK_OK;
}

/* Copies gradient i into its slice; NULL counts as zeros. */
static lk_status step_copy_gradient(step *s, int i, lk_tensor *g)
{
    lk_optimizer *o = s->optimizer;
    if (!g && o->zeroed[i])
        return LK_OK;
    o->zeroed[i] = false;
    if (g && lk__tensor_same_view(g, o->slices[i])) /* it was written there */
        return LK_OK;
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

static bool step_needs_norms(const lk_optimizer_opts *opts)
{
    return opts->kind == LK_LARS || opts->clip_norm > 0 || opts->skip_nonfinite;
}

static lk_status step_find_scales(step *s)
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
        norms.parameters = lk__squared_norms(s->at, o->packed, o->offsets);
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

static lk_status step_update_sgd(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    lk_momentum_attrs attrs = {.rate = s->rate,
                               .momentum = o->opts.momentum,
                               .weight_decay = o->opts.weight_decay,
                               .nesterov = o->opts.nesterov};
    lk_tensor *v = o->opts.momentum > 0 ? o->slots[0] : NULL;
    return lk__momentum_update(s->at, o->own, o->own_gradients, v, &s->control, &attrs);
}

static lk_adam_attrs step_adam_attrs(const step *s)
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

/* Kernels compute with the rate, and what Adam makes of it, in f32. */
static lk_status step_check_rate(const step *s)
{
    lk_adam_attrs adam = step_adam_attrs(s);
    bool is_adam = lk__optimizer_is_adam(s->optimizer->opts.kind);
    if (!isfinite((float)s->rate))
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: rate is %g; it must be finite in f32", s->rate);
    if (is_adam && !(isfinite((float)adam.step) && isfinite((float)adam.keep)))
        LK_FAIL(LK_ERR_ARGUMENT,
                "optimizer: rate is %g, which makes Adam's factors %g and %g; they must be finite in f32", s->rate,
                adam.step, adam.keep);
    return LK_OK;
}

static lk_status step_update_adam(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    lk_adam_attrs attrs = step_adam_attrs(s);
    return lk__adam_update(s->at, o->own, o->own_gradients, o->slots[0], o->slots[1], &s->control, &attrs);
}

static lk_status step_update_lars(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    lk_lars_attrs attrs = {.rate = s->rate, .momentum = o->opts.momentum, .weight_decay = o->opts.weight_decay};
    lk_update_segments segments = {.offsets = o->own_offsets, .ratios = s->scales.ratios, .adapted = o->adapted};
    return lk__lars_update(s->at, o->own, o->own_gradients, o->slots[0], &segments, &s->control, &attrs);
}

static lk_status step_update(const step *s)
{
    switch (s->optimizer->opts.kind) {
    case LK_ADAM:
    case LK_ADAMW:
        return step_update_adam(s);
    case LK_LARS:
        return step_update_lars(s);
    default:
        return step_update_sgd(s);
    }
}

/* Minus the share by which the average moves towards the parameters. */
static double step_average_rate(const lk_optimizer *o)
{
    double t = (double)o->steps;
    return fmin(o->opts.average, (1 + t) / (10 + t)) - 1;
}

/* An update of the average a by the "gradient" w - a, with a weight decay of -1. */
static lk_status step_update_average(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    lk_momentum_attrs attrs = {.rate = step_average_rate(o), .weight_decay = -1};
    lk_update_control control = {.skip = s->control.skip, .rates = s->average_rates};
    return o->average ? lk__momentum_update(s->at, o->average, o->own, NULL, &control, &attrs) : LK_OK;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static lk_status step_check_gradients(const lk_optimizer *o, lk_tensor *const *gradients)
{
    for (int i = 0; i < o->n; i++)
        LK_TRY(step_check_gradient(o, i, gradients[i]));
    return LK_OK;
}

static lk_status step_run(step *s, lk_tensor *const *gradients)
{
    lk_optimizer *o = s->optimizer;
    LK_TRY(step_check_gradients(o, gradients));
    for (int i = 0; i < o->n; i++)
        LK_TRY(step_copy_gradient(s, i, gradients[i]));
    if (step_needs_norms(&o->opts))
        LK_TRY(step_find_scales(s));
    LK_TRY(step_update(s));
    return step_update_average(s);
}

static void step_keep_result(lk_tensor *made, lk_tensor **kept)
{
    lk_tensor_retain(made);
    lk_tensor_release(*kept);
    *kept = made;
}

/* Writes skip and norm in place, because the next recorded step reads the flag there. */
static lk_status step_write_results(const step *s)
{
    const lk_optimizer *o = s->optimizer;
    if (!s->scales.skip)
        return LK_OK;
    LK_TRY(lk_copy_into_at(s->at, o->skip, s->scales.skip));
    return lk_copy_into_at(s->at, o->norm, s->scales.norm);
}

/* Counts the step as taken. */
static void step_count(const step *s)
{
    lk_optimizer *o = s->optimizer;
    o->steps++;
    o->has_gradients = true;
    o->power1 = s->power1;
    o->power2 = s->power2;
}

/* Nothing may fail after the update is pushed: a step is taken as a whole or not at all. */
static lk_status step_finish(const step *s)
{
    lk_optimizer *o = s->optimizer;
    step_count(s);
    if (o->is_recorded)
        return step_write_results(s);
    step_keep_result(s->scales.skip, &o->skip);
    step_keep_result(s->scales.norm, &o->norm);
    return LK_OK;
}

lk_status lk__optimizer_check_step(lk_optimizer *optimizer, lk_tensor *const *gradients, double rate)
{
    step s = step_new(LK_HERE, optimizer, rate);
    LK_TRY(step_check_rate(&s));
    return step_check_gradients(optimizer, gradients);
}

lk_status lk__optimizer_step(lk_call_site at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                             double rate)
{
    step s = step_new(at, optimizer, rate);
    s.loss = loss;
    LK_TRY(step_check_rate(&s));
    lk_recorder recorder = lk__recorder_set((lk_recorder){.self = NULL});
    lk_scope_begin();
    lk_status status = step_run(&s, gradients);
    if (status == LK_OK)
        status = step_finish(&s);
    lk_scope_end();
    lk__recorder_set(recorder);
    return status;
}

lk_status lk_optimizer_step_at(lk_call_site at, lk_optimizer *optimizer, lk_tensor *const *gradients, double rate)
{
    return lk__optimizer_step(at, optimizer, gradients, NULL, rate);
}

/* --- a step in a program ------------------------------------------------------------------------------------------ */

static lk_status optimizer_make_once(lk_device *device, lk_dtype dtype, lk_tensor **kept)
{
    if (*kept)
        return LK_OK;
    *kept = lk_tensor_retain(lk_zeros(device, dtype, LK_SCALAR));
    return *kept ? LK_OK : lk_error_status();
}

lk_status lk__optimizer_prepare_recording(lk_optimizer *optimizer)
{
    lk_device *device = lk_tensor_device(optimizer->packed);
    lk_status status = LK_OK;
    lk_scope_begin();
    if (step_needs_norms(&optimizer->opts)) {
        status = optimizer_make_once(device, LK_F32, &optimizer->skip);
        if (status == LK_OK)
            status = optimizer_make_once(device, LK_F64, &optimizer->norm);
    }
    lk_scope_end();
    optimizer->is_recorded = status == LK_OK;
    return status;
}

lk_status lk__optimizer_record(lk_call_site at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                               lk_tensor *rates)
{
    step s = step_new(at, optimizer, 0);
    s.loss = loss;
    s.control.rates = rates;
    s.scales = (lk_update_scales){.skip = optimizer->skip, .norm = optimizer->norm}; /* the next step reads the flag */
    if (optimizer->average) {
        s.control.rates = lk_slice_at(at, rates, 0, 0, LK_UPDATE_RATES);
        s.average_rates = lk_slice_at(at, rates, 0, LK_UPDATE_RATES, LK_OPTIMIZER_RATES);
        if (!s.control.rates || !s.average_rates)
            return lk_error_status();
    }
    return step_run(&s, gradients);
}

int lk__optimizer_rate_count(const lk_optimizer *optimizer)
{
    return optimizer->average ? LK_OPTIMIZER_RATES : LK_UPDATE_RATES;
}

lk_status lk__optimizer_rates(lk_optimizer *optimizer, double rate, double values[LK_OPTIMIZER_RATES])
{
    step s = step_new(LK_HERE, optimizer, rate);
    LK_TRY(step_check_rate(&s));
    lk_adam_attrs adam = step_adam_attrs(&s);
    bool is_adam = lk__optimizer_is_adam(optimizer->opts.kind);
    values[0] = is_adam ? adam.step : rate;
    values[1] = is_adam ? adam.unbias : 0;
    values[2] = is_adam ? adam.keep : 0;
    values[3] = step_average_rate(optimizer);
    values[4] = values[5] = 0;
    return LK_OK;
}

lk_status lk__optimizer_resume(lk_optimizer *optimizer, int64_t steps)
{
    const double negligible = 0x1p-55; /* 1 minus it is 1 */
    const int64_t most = INT64_C(1) << 28;
    double power1 = 1, power2 = 1;
    int64_t n = 0;
    /* Multiplies step by step, as the steps taken have: that rounds alike. */
    for (; n < lk__min(steps, most) && (power1 > negligible || power2 > negligible); n++) {
        power1 *= power1 > negligible ? optimizer->opts.beta1 : 1;
        power2 *= power2 > negligible ? optimizer->opts.beta2 : 1;
    }
    if (n == most)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "optimizer: %lld steps with beta1 %.17g and beta2 %.17g; at most %lld, as one is so near 1",
                (long long)steps, optimizer->opts.beta1, optimizer->opts.beta2, (long long)most - 1);
    optimizer->power1 = power1;
    optimizer->power2 = power2;
    optimizer->steps = steps;
    optimizer->has_gradients = false;
    return LK_OK;
}

void lk__optimizer_replayed(lk_optimizer *optimizer)
{
    step s = step_new(LK_HERE, optimizer, 0);
    step_count(&s);
}
