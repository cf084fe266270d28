/* Epochs. The caller's thread runs at most LK_RUN_AHEAD steps ahead of the devices: it then waits for the oldest step's
 * metrics, which it wants anyway. */
#include "train/trainer.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"

#include <math.h>
#include <time.h>

/* In seconds, on a clock that only goes forward. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* One pass over a loader. */
typedef struct pass {
    lk_loader *loader;
    lk_ledger *ledger;
    lk_status (*push)(lk_trainer *trainer, lk_batch *batch);
    /* What is done with a step's metrics as they arrive; NULL: nothing. */
    lk_status (*taken)(void *user, const struct pass *p, const lk__pending_step *step, const lk__step_metrics *metrics,
                       const char **stopped_by);
    void *user;
    lk_metrics so_far, before_update; /* before_update: so_far as it was before the update at hand */
    int64_t taken_steps, samples, skipped;
    double began, rate; /* rate: of the last step taken */
    bool evaluates;     /* an evaluation follows */
    bool ended;         /* the last batch of the loader was pushed */
    bool warned;
    const char *stopped_by;
} pass;

/* --- a step's metrics --------------------------------------------------------------------------------------------- */

static void add_mean(lk_mean *total, lk_mean mean)
{
    total->sum += mean.sum;
    total->count += mean.count;
}

static void add_metrics(lk_metrics *total, const lk_metrics *metrics)
{
    add_mean(&total->loss, metrics->loss);
    add_mean(&total->accuracy, metrics->accuracy);
    add_mean(&total->top_k, metrics->top_k);
}

static void warn_once(pass *p, const lk__pending_step *step, const char *what)
{
    if (!p->warned)
        lk__log(LK_LOG_WARNING, "epoch %lld, step %lld: %s; a smaller --base-lr or --clip-norm may help",
                (long long)step->update.epoch + 1, (long long)step->batch + 1, what);
    p->warned = true;
}

/* The epoch's means are as if the batches of a skipped update had not been there. Only the update's last batch says
 * that it was skipped; a loss that is not finite says so earlier. */
static void add_training_step(const lk_trainer *trainer, pass *p, const lk__pending_step *step,
                              const lk__step_metrics *found)
{
    if (step->batch == step->update.first)
        p->before_update = p->so_far;
    if (found->skipped) {
        p->so_far = p->before_update;
        p->skipped += step->update.batches;
    } else if (isfinite(found->metrics.loss.sum) || trainer->config.nan_guard != LK_NAN_GUARD_SKIP) {
        add_metrics(&p->so_far, &found->metrics);
    }
}

static lk_status guard(lk_trainer *trainer, pass *p, const lk__pending_step *step, const lk__step_metrics *found)
{
    int mode = trainer->config.nan_guard;
    if (found->skipped && mode == LK_NAN_GUARD_STOP)
        return lk__replay_update(trainer, &step->update);
    if (found->skipped)
        warn_once(p, step, "loss or gradients are not finite, the update is skipped");
    else if (!isfinite(found->metrics.loss.sum) && mode == LK_NAN_GUARD_OFF)
        warn_once(p, step, "the loss is not finite any more");
    return LK_OK;
}

/* The end of an update is a place to go on from. */
static void advance(lk_trainer *trainer, const pass *p, const lk__pending_step *step)
{
    lk__position *at = &trainer->position;
    bool rolls_over = !p->evaluates && step->batch + 1 == trainer->plan.steps_per_epoch;
    if (step->batch + 1 < step->update.first + step->update.batches)
        return;
    *at = (lk__position){.epoch = step->update.epoch + rolls_over,
                         .batch = rolls_over ? 0 : step->batch + 1,
                         .steps = at->steps + step->update.batches,
                         .updates = at->updates + 1,
                         .samples_seen = at->samples_seen + step->update.samples,
                         .samples = p->samples,
                         .so_far = p->so_far,
                         .skipped = p->skipped,
                         .rate = p->rate,
                         .seconds = now() - p->began};
}

static lk_status account(lk_trainer *trainer, pass *p, bool training, const lk__pending_step *step,
                         const lk__step_metrics *found)
{
    trainer->voted_to_end |= found->interrupted;
    if (training) {
        LK_TRY(guard(trainer, p, step, found));
        add_training_step(trainer, p, step, found);
    } else {
        add_metrics(&p->so_far, &found->metrics);
    }
    p->taken_steps++;
    p->samples += step->count;
    p->rate = step->update.rate;
    if (training)
        advance(trainer, p, step);
    return p->taken ? p->taken(p->user, p, step, found, &p->stopped_by) : LK_OK;
}

static lk_status take(lk_trainer *trainer, pass *p, bool training)
{
    lk__pending_step step;
    lk__step_metrics found;
    LK_TRY(lk__take_pending(trainer, &step, &found));
    return account(trainer, p, training, &step, &found);
}

/* --- rates -------------------------------------------------------------------------------------------------------- */

static double rate_of(lk_trainer *trainer, int64_t epoch, int64_t update, bool hooks)
{
    const lk_plan *plan = &trainer->plan;
    double fraction = (double)epoch + (double)update / (double)plan->updates_per_epoch;
    double rate = lk_schedule_rate(&plan->schedule, fraction);
    return hooks ? lk__callbacks_rate(&trainer->callbacks, trainer, fraction, rate) : rate;
}

/* An update has the rate of its first batch. */
static double rate_of_batch(lk_trainer *trainer, const lk_batch *batch, bool hooks)
{
    int64_t accumulate = trainer->plan.accumulate;
    bool is_first = batch->index % accumulate == 0;
    return is_first ? rate_of(trainer, batch->epoch, batch->index / accumulate, hooks) : trainer->update.rate;
}

static lk_status hand_out_epoch(lk_trainer *trainer)
{
    int64_t n = trainer->plan.steps_per_epoch;
    double *rates = lk__calloc((size_t)n, sizeof *rates);
    if (!rates)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        rates[i] = rate_of(trainer, trainer->epoch, i, true);
    lk_status status = lk__ps_begin_epoch(trainer, rates);
    lk__free(rates);
    return status;
}

/* --- a pass ------------------------------------------------------------------------------------------------------- */

/* What comes behind an epoch's training is prepared from now on: its last steps are still running. */
static lk_status start_ahead(lk_trainer *trainer, const pass *p)
{
    if (p->loader != trainer->train_loader)
        return LK_OK;
    if (p->evaluates && trainer->val_loader)
        LK_TRY(lk_loader_start(trainer->val_loader, 0));
    bool another = trainer->epoch + 1 < trainer->plan.epochs;
    return another ? lk_loader_start(trainer->train_loader, trainer->epoch + 1) : LK_OK;
}

static lk_status push_step(lk_trainer *trainer, pass *p)
{
    lk_batch *batch;
    LK_TRY(lk_loader_next(p->loader, &batch));
    p->ended = !batch || batch->index + 1 == lk_loader_batches(p->loader);
    if (!batch)
        return LK_OK;
    int64_t began = lk__trace_begin();
    lk_range own = lk__own_samples(trainer, batch->count);
    lk_tensor *votes = NULL;
    lk_status status = lk_ledger_add(p->ledger, batch->indices + own.begin, own.end - own.begin);
    if (status == LK_OK)
        status = lk__push_vote(trainer, &votes);
    if (status == LK_OK)
        status = p->push(trainer, batch);
    if (status == LK_OK)
        trainer->pending[trainer->n_pending - 1].votes = votes;
    else
        lk_tensor_release(votes);
    lk__trace_end(LK_TRACE_PUSH_STEP, began, batch->index);
    lk_batch_release(batch);
    return status == LK_OK && p->ended ? start_ahead(trainer, p) : status;
}

/* The oldest step that is under way. */
static void tell_step(const lk_trainer *trainer)
{
    lk__heartbeat_step(trainer->steps - (trainer->n_pending > 0 ? trainer->n_pending - 1 : 0));
}

/* Ends early, but with all of its steps taken, where a callback or an interrupt says so. */
static lk_status run_steps(lk_trainer *trainer, pass *p, int64_t epoch, bool training)
{
    lk_ledger_reset(p->ledger);
    LK_TRY(lk_loader_start(p->loader, epoch));
    p->began = now();
    while (!p->ended && !p->stopped_by && !lk__is_interrupted(trainer)) {
        if (trainer->n_pending == LK_RUN_AHEAD)
            LK_TRY(take(trainer, p, training));
        if (!p->stopped_by && !lk__is_interrupted(trainer))
            LK_TRY(push_step(trainer, p));
        if (training)
            tell_step(trainer);
    }
    while (trainer->n_pending > 0)
        LK_TRY(take(trainer, p, training));
    return LK_OK;
}

/* The same where workers elsewhere take the steps (parameter-server), in whatever order they are through. */
static lk_status run_steps_elsewhere(lk_trainer *trainer, pass *p)
{
    bool stopped = false;
    lk_ledger_reset(p->ledger);
    p->began = now();
    LK_TRY(hand_out_epoch(trainer));
    if (p->evaluates && trainer->val_loader)
        LK_TRY(lk_loader_start(trainer->val_loader, 0));
    while (!lk__ps_epoch_is_over(trainer)) {
        lk__pending_step step;
        lk__step_metrics found;
        bool any;
        lk__still(LK_DOING_OTHERS, "wait for workers");
        LK_TRY(lk__ps_next_step(trainer, &step, &found, &any));
        if (any) {
            lk__now(LK_DOING_WORK, "training");
            lk__heartbeat_step(trainer->steps);
            LK_TRY(account(trainer, p, true, &step, &found));
        }
        if (!stopped && (p->stopped_by || lk__is_interrupted(trainer))) {
            lk__ps_stop_epoch(trainer);
            stopped = true;
        }
    }
    p->ended = p->taken_steps == trainer->plan.steps_per_epoch;
    return lk__ps_pull(trainer);
}

static lk_status run_pass(lk_trainer *trainer, pass *p, int64_t epoch, bool training)
{
    trainer->in_pass = true;
    lk__doing before = lk__now_for_a_while(LK_DOING_WORK, training ? "training" : "evaluation");
    lk_status status =
        training && trainer->chief ? run_steps_elsewhere(trainer, p) : run_steps(trainer, p, epoch, training);
    lk__now_again(before);
    trainer->in_pass = false;
    return status;
}

/* A pass would take the metrics of steps that another one has under way for its own. */
static lk_status check_no_pass(const lk_trainer *trainer, const char *what)
{
    if (trainer->in_pass)
        LK_FAIL(LK_ERR_STATE, "%s: steps of fit are under way; from epoch_end on it can be asked for", what);
    return LK_OK;
}

static lk_status check_ledger(const lk_trainer *trainer, lk_ledger *ledger, const char *what, lk_ledger_report *report)
{
    LK_TRY(lk__merge_ledger(trainer, ledger));
    lk_ledger_check(ledger, report);
    if (report->first_bad >= 0)
        LK_FAIL(LK_ERR_STATE, "ledger: %s sample %lld was not used exactly once in this epoch", what,
                (long long)report->first_bad);
    return LK_OK;
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

static lk_status evaluation_step_taken(void *user, const pass *p, const lk__pending_step *step,
                                       const lk__step_metrics *found, const char **stopped_by)
{
    (void)step, (void)found, (void)stopped_by;
    lk_trainer *trainer = user;
    lk_eval_report report = {.epoch = trainer->epoch,
                             .step = p->taken_steps,
                             .steps = lk_loader_batches(p->loader),
                             .so_far = p->so_far,
                             .seconds = now() - p->began};
    return lk__callbacks_eval_step(&trainer->callbacks, trainer, &report);
}

lk_status lk_trainer_evaluate(lk_trainer *trainer, lk_metrics *metrics)
{
    pass p = {.loader = trainer->val_loader,
              .ledger = trainer->val_ledger,
              .push = lk__evaluate_step,
              .taken = evaluation_step_taken,
              .user = trainer};
    *metrics = (lk_metrics){0};
    LK_TRY(check_no_pass(trainer, "evaluation"));
    if (!trainer->val_set)
        return LK_OK;
    lk_status status = lk__or_give_up(trainer, run_pass(trainer, &p, 0, false));
    lk__drop_pending(trainer);
    LK_TRY(status);
    if (!p.ended) {
        lk__end_interruption(trainer);
        LK_FAIL(LK_ERR_INTERRUPTED, "evaluation: interrupted after %lld samples", (long long)p.samples);
    }
    *metrics = p.so_far;
    return LK_OK;
}

/* --- training steps ----------------------------------------------------------------------------------------------- */

static lk_status push_with_hooks(lk_trainer *trainer, lk_batch *batch)
{
    LK_TRY(lk__train_step(trainer, batch, rate_of_batch(trainer, batch, true)));
    return lk__audit(trainer, false);
}

static lk_status push_plain(lk_trainer *trainer, lk_batch *batch)
{
    LK_TRY(lk__train_step(trainer, batch, rate_of_batch(trainer, batch, false)));
    return lk__audit(trainer, false);
}

/* --- fit ---------------------------------------------------------------------------------------------------------- */

/* Throughput leaves out the first epoch; where there is no other, its first tenth. */
typedef struct fit_state {
    lk_trainer *trainer;
    lk_train_result *result;
    double began;
    int64_t first_epoch;
    double warm_end; /* when the first epoch's first tenth was over */
    int64_t warm_images;
    double seconds, first_seconds; /* timed */
    int64_t images, first_images;
    double flops_per_image; /* of training */
} fit_state;

static lk_status step_taken(void *user, const pass *p, const lk__pending_step *step, const lk__step_metrics *found,
                            const char **stopped_by)
{
    fit_state *fit = user;
    lk_trainer *trainer = fit->trainer;
    double time = now();
    if (p->taken_steps == trainer->plan.steps_per_epoch / 10 && trainer->epoch == fit->first_epoch) {
        fit->warm_end = time;
        fit->warm_images = p->samples;
    }
    lk_step_report report = {.epoch = trainer->epoch + 1,
                             .step = p->taken_steps,
                             .steps = trainer->plan.steps_per_epoch,
                             .samples = p->samples,
                             .batch = found->metrics,
                             .so_far = p->so_far,
                             .rate = step->update.rate,
                             .seconds = time - p->began,
                             .skipped = found->skipped};
    return lk__callbacks_step_end(&trainer->callbacks, trainer, &report, stopped_by);
}

static double flops_so_far(const lk_trainer *trainer)
{
    double flops = 0;
    for (int d = 0; d < trainer->n_devices; d++)
        flops += lk_device_flops(trainer->devices[d]);
    return flops;
}

static void count_throughput(fit_state *fit, const pass *p, double seconds)
{
    if (fit->trainer->epoch > fit->first_epoch) {
        fit->seconds += seconds;
        fit->images += p->samples;
        return;
    }
    bool warm = fit->warm_images > 0;
    fit->first_seconds = warm ? p->began + seconds - fit->warm_end : seconds;
    fit->first_images = p->samples - fit->warm_images;
}

/* *complete: the epoch was not ended before its last step. */
static lk_status train_epoch(fit_state *fit, lk_epoch_report *report, bool *complete)
{
    lk_trainer *trainer = fit->trainer;
    lk_train_result *result = fit->result;
    pass p = {.loader = trainer->train_loader,
              .ledger = trainer->train_ledger,
              .push = push_with_hooks,
              .taken = step_taken,
              .user = fit,
              .evaluates = true};
    double flops = flops_so_far(trainer);
    trainer->epoch_open = true;
    lk_status status = run_pass(trainer, &p, trainer->epoch, true);
    report->epoch = trainer->epoch + 1;
    report->steps = trainer->steps;
    report->samples = p.samples;
    report->seconds = now() - p.began;
    report->train = p.so_far;
    report->rate = p.rate;
    report->skipped_steps = p.skipped;
    report->images_per_second = (double)p.samples / report->seconds;
    result->steps += p.taken_steps;
    result->samples_seen += p.samples;
    result->seconds += report->seconds;
    result->stopped_by = p.stopped_by;
    LK_TRY(status);
    if (p.samples > 0)
        fit->flops_per_image = (flops_so_far(trainer) - flops) / (double)p.samples;
    count_throughput(fit, &p, report->seconds);
    if (lk__is_interrupted(trainer))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted in epoch %lld after step %lld", (long long)report->epoch,
                (long long)p.taken_steps);
    *complete = p.ended;
    return LK_OK;
}

static lk_status run_epoch(fit_state *fit)
{
    lk_epoch_report report = {.train_ledger = {.first_bad = -1}, .val_ledger = {.first_bad = -1}};
    lk_trainer *trainer = fit->trainer;
    bool complete = false;
    LK_TRY(lk__callbacks_epoch_begin(&trainer->callbacks, trainer, trainer->epoch + 1));
    double began = now();
    LK_TRY(train_epoch(fit, &report, &complete));
    if (!complete)
        return LK_OK;
    trainer->epoch++;
    trainer->epoch_open = false;
    fit->result->epochs++;
    LK_TRY(check_ledger(trainer, trainer->train_ledger, "training", &report.train_ledger));
    LK_TRY(lk__measure_statistics(trainer));
    LK_TRY(lk_trainer_evaluate(trainer, &report.val));
    if (trainer->val_set)
        LK_TRY(check_ledger(trainer, trainer->val_ledger, "validation", &report.val_ledger));
    fit->result->val = report.val;
    double ended = now();
    report.epoch_seconds = ended - began;
    report.total_seconds = ended - fit->began;
    return lk__callbacks_epoch_end(&trainer->callbacks, trainer, &report, &fit->result->stopped_by);
}

static lk_status run_epochs(fit_state *fit)
{
    lk_trainer *trainer = fit->trainer;
    while (trainer->epoch < trainer->plan.epochs && !fit->result->stopped_by) {
        lk_status status = run_epoch(fit);
        lk__drop_pending(trainer);
        LK_TRY(status);
    }
    return LK_OK;
}

/* After an interrupt the parameters are whole: the step at hand was finished. */
static lk_status finish_result(const fit_state *fit, lk_status status)
{
    lk_train_result *result = fit->result;
    double seconds = fit->images > 0 ? fit->seconds : fit->first_seconds;
    int64_t images = fit->images > 0 ? fit->images : fit->first_images;
    result->images_per_second = seconds > 0 && images > 0 ? (double)images / seconds : NAN;
    /* Workers elsewhere do not say what they compute. */
    result->flops_per_second = fit->trainer->chief ? NAN : result->images_per_second * fit->flops_per_image;
    result->total_seconds = now() - fit->began;
    if (status == LK_OK)
        status = lk__add_over_processes(fit->trainer, &result->flops_per_second);
    if (status == LK_OK || status == LK_ERR_INTERRUPTED) {
        lk_status digested = lk_trainer_digest(fit->trainer, 0, result->digest);
        return status == LK_OK ? digested : status;
    }
    return status;
}

lk_status lk_trainer_fit(lk_trainer *trainer, lk_train_result *result)
{
    *result = (lk_train_result){0};
    if (trainer->epoch_open)
        LK_FAIL(LK_ERR_STATE, "training: an epoch was left half way; lk_trainer_run has to end it first");
    LK_TRY(check_no_pass(trainer, "training"));
    if (trainer->role == LK_TRAIN_WORKER)
        LK_FAIL(LK_ERR_STATE, "training: a worker of strategy parameter-server works for its chief: lk_trainer_work");
    fit_state fit = {.trainer = trainer, .result = result, .began = now(), .first_epoch = trainer->epoch};
    lk__now(LK_DOING_WORK, "records");
    lk_status status = lk__callbacks_train_begin(&trainer->callbacks, trainer);
    if (status == LK_OK)
        status = run_epochs(&fit);
    if (status == LK_OK)
        status = lk__audit(trainer, true);
    result->audits = trainer->audits;
    status = lk__or_give_up(trainer, finish_result(&fit, status));
    status = lk__or_give_up(trainer, lk__callbacks_train_end(&trainer->callbacks, trainer, result, status));
    lk__ps_end(trainer, status);
    lk__end_interruption(trainer);
    return status;
}

/* --- steps alone -------------------------------------------------------------------------------------------------- */

static lk_status run_step(lk_trainer *trainer, pass *p)
{
    if (!trainer->epoch_open) {
        lk_ledger_reset(trainer->train_ledger);
        LK_TRY(lk_loader_start(trainer->train_loader, trainer->epoch));
        trainer->epoch_open = true;
    }
    if (trainer->n_pending == LK_RUN_AHEAD)
        LK_TRY(take(trainer, p, true));
    LK_TRY(push_step(trainer, p));
    trainer->epoch_open = !p->ended;
    trainer->epoch += p->ended;
    return LK_OK;
}

static lk_status run_steps_alone(lk_trainer *trainer, pass *p, int64_t steps)
{
    for (int64_t step = 0; step < steps && !lk__is_interrupted(trainer); step++)
        LK_TRY(run_step(trainer, p));
    while (trainer->n_pending > 0)
        LK_TRY(take(trainer, p, true));
    return LK_OK;
}

lk_status lk_trainer_run(lk_trainer *trainer, int64_t steps)
{
    pass p = {.loader = trainer->train_loader, .ledger = trainer->train_ledger, .push = push_plain, .began = now()};
    LK_TRY(check_no_pass(trainer, "training steps"));
    if (trainer->applies_elsewhere)
        LK_FAIL(LK_ERR_STATE, "training steps: strategy parameter-server has its workers take them: lk_trainer_fit");
    LK_TRY(lk__or_give_up(trainer, run_steps_alone(trainer, &p, steps)));
    if (lk__end_interruption(trainer))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted after %lld of %lld steps", (long long)p.taken_steps,
                (long long)steps);
    return LK_OK;
}
