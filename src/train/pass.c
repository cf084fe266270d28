#include "train/pass.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/trace.h"
#include "train/parameter_server/ps_chief.h"
#include "train/processes.h"
#include "train/step/replay.h"
#include "train/step/step.h"
#include "train/trainer.h"

#include <math.h>

/* --- a step's metrics --------------------------------------------------------------------------------------------- */

static void pass_add_mean(lk_mean *total, lk_mean mean)
{
    total->sum += mean.sum;
    total->count += mean.count;
}

static void pass_add_metrics(lk_metrics *total, const lk_metrics *metrics)
{
    pass_add_mean(&total->loss, metrics->loss);
    pass_add_mean(&total->accuracy, metrics->accuracy);
    pass_add_mean(&total->top_k, metrics->top_k);
}

static void pass_warn_once(lk_pass *p, const lk_pending_step *step, const char *what)
{
    if (!p->warned)
        lk__log(LK_LOG_WARNING, "epoch %lld, step %lld: %s; a smaller --base-lr or --clip-norm may help",
                (long long)step->update.epoch + 1, (long long)step->batch + 1, what);
    p->warned = true;
}

/* The epoch's means leave out the batches of a skipped update. Only the update's last batch tells that it was skipped;
 * an earlier sign is a loss that is not finite. */
static void pass_add_training_step(const lk_trainer *trainer, lk_pass *p, const lk_pending_step *step,
                                   const lk_step_metrics *found)
{
    if (step->batch == step->update.first)
        p->totals.before_update = p->totals.so_far;
    if (found->skipped) {
        p->totals.so_far = p->totals.before_update;
        p->totals.skipped += step->update.batches;
    } else if (isfinite(found->metrics.loss.sum) || trainer->config.checks.nan_guard != LK_NAN_GUARD_SKIP) {
        pass_add_metrics(&p->totals.so_far, &found->metrics);
    }
}

static lk_status pass_guard(lk_trainer *trainer, lk_pass *p, const lk_pending_step *step, const lk_step_metrics *found)
{
    int mode = trainer->config.checks.nan_guard;
    if (found->skipped && mode == LK_NAN_GUARD_STOP)
        return lk__replay_update(trainer, &step->update);
    if (found->skipped)
        pass_warn_once(p, step, "loss or gradients are not finite, the update is skipped");
    else if (!isfinite(found->metrics.loss.sum) && mode == LK_NAN_GUARD_OFF)
        pass_warn_once(p, step, "the loss is not finite any more");
    return LK_OK;
}

/* Training can resume from the end of an update; with workers, only when none of their updates is in flight. */
static void pass_advance_position(lk_trainer *trainer, const lk_pass *p, const lk_pending_step *step)
{
    lk_position *at = &trainer->progress.position;
    bool rolls_over = !p->evaluates && step->batch + 1 == trainer->plan.steps_per_epoch;
    if (step->batch + 1 < step->update.first + step->update.batches)
        return;
    int64_t done =
        trainer->server.chief ? p->totals.taken_steps : step->batch + 1; /* workers finish steps in any order */
    *at = (lk_position){.epoch = step->update.epoch + rolls_over,
                        .batch = rolls_over ? 0 : done,
                        .steps = at->steps + step->update.batches,
                        .updates = at->updates + 1,
                        .samples_seen = at->samples_seen + step->update.samples,
                        .samples = rolls_over ? 0 : p->totals.samples,
                        .so_far = p->totals.so_far,
                        .skipped = p->totals.skipped,
                        .rate = p->totals.rate,
                        .seconds = rolls_over ? 0 : lk__seconds() - p->began};
}

static lk_status pass_account(lk_trainer *trainer, lk_pass *p, bool training, const lk_pending_step *step,
                              const lk_step_metrics *found)
{
    trainer->progress.voted_to_end |= found->votes[LK_VOTE_END];
    trainer->progress.voted_to_rest |= found->votes[LK_VOTE_REST];
    if (training) {
        LK_TRY(pass_guard(trainer, p, step, found));
        pass_add_training_step(trainer, p, step, found);
    } else {
        pass_add_metrics(&p->totals.so_far, &found->metrics);
    }
    p->totals.taken_steps++;
    p->totals.samples += step->count;
    p->totals.rate = step->update.rate;
    if (training) {
        trainer->progress.totals = p->totals;
        pass_advance_position(trainer, p, step);
    }
    bool was_stopped = p->stopped_by != NULL;
    if (p->taken)
        LK_TRY(p->taken(p->user, p, step, found, &p->stopped_by));
    if (p->stopped_by && !was_stopped)
        p->stop_at = step->batch + LK_RUN_AHEAD;
    return LK_OK;
}

lk_status lk__pass_take(lk_trainer *trainer, lk_pass *p, bool training)
{
    lk_pending_step step;
    lk_step_metrics found;
    LK_TRY(lk__pending_take(trainer, &step, &found));
    return pass_account(trainer, p, training, &step, &found);
}

/* --- rates -------------------------------------------------------------------------------------------------------- */

static double pass_rate_of_update(lk_trainer *trainer, int64_t epoch, int64_t update, bool with_callbacks)
{
    const lk_plan *plan = &trainer->plan;
    double fraction = (double)epoch + (double)update / (double)plan->updates_per_epoch;
    double rate = lk_schedule_rate(&plan->schedule, fraction);
    return with_callbacks ? lk__callbacks_rate(&trainer->callbacks, trainer, fraction, rate) : rate;
}

double lk__rate_of_batch(lk_trainer *trainer, const lk_batch *batch, bool with_callbacks)
{
    int64_t accumulate = trainer->plan.accumulate;
    bool is_first = batch->index % accumulate == 0;
    return is_first ? pass_rate_of_update(trainer, batch->epoch, batch->index / accumulate, with_callbacks)
                    : trainer->progress.update.rate;
}

/* Strategy parameter-server: lets the workers begin the epoch, of which `done` batches are over, with its rates. */
static lk_status pass_hand_out_epoch(lk_trainer *trainer, int64_t done)
{
    int64_t n = trainer->plan.steps_per_epoch;
    double *rates = lk__calloc((size_t)n, sizeof *rates);
    if (!rates)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        rates[i] = pass_rate_of_update(trainer, trainer->progress.epoch, i, true);
    lk_status status = lk__ps_begin_epoch(trainer, done, rates);
    lk__free(rates);
    return status;
}

/* --- a pass ------------------------------------------------------------------------------------------------------- */

/* Starts the loaders of validation and of the next epoch, while the epoch's last steps are still running. */
static lk_status pass_start_ahead(lk_trainer *trainer, const lk_pass *p)
{
    if (p->loader != trainer->data.train_loader)
        return LK_OK;
    if (p->evaluates && trainer->data.val_loader)
        LK_TRY(lk_loader_start(trainer->data.val_loader, 0));
    bool another = trainer->progress.epoch + 1 < trainer->plan.epochs;
    return another ? lk_loader_start(trainer->data.train_loader, trainer->progress.epoch + 1) : LK_OK;
}

lk_status lk__pass_push(lk_trainer *trainer, lk_pass *p)
{
    lk_batch *batch;
    LK_TRY(lk_loader_next(p->loader, &batch));
    p->ended = !batch || batch->index + 1 == lk_loader_batches(p->loader);
    if (!batch)
        return pass_start_ahead(trainer, p);
    p->pushed = batch->index + 1;
    int64_t began = lk__trace_begin();
    lk_range own = lk__trainer_own_samples(trainer, batch->count);
    lk_tensor *votes = NULL;
    lk_status status = lk_ledger_add(p->ledger, batch->indices + own.begin, own.end - own.begin);
    if (status == LK_OK)
        status = lk__push_vote(trainer, &votes);
    if (status == LK_OK)
        status = p->push(trainer, batch);
    if (status == LK_OK)
        trainer->progress.pending[trainer->progress.n_pending - 1].votes = votes;
    else
        lk_tensor_release(votes);
    lk__trace_end(LK_TRACE_PUSH_STEP, began, batch->index);
    lk_batch_release(batch);
    return status == LK_OK && p->ended ? pass_start_ahead(trainer, p) : status;
}

/* Notes in the ledger the samples of the epoch's batches before the pass's first one. */
static lk_status pass_note_earlier_samples(const lk_trainer *trainer, const lk_pass *p, int64_t epoch)
{
    const lk_plan *plan = &trainer->plan;
    int64_t *order = lk__calloc((size_t)plan->train_samples, sizeof *order);
    lk_status status = order ? lk_sample_order(plan->train_samples, plan->seed, epoch, true, order) : LK_ERR_MEMORY;
    for (int64_t i = 0; i < p->first && status == LK_OK; i++) {
        int64_t begin = i * plan->batch_size, left = plan->train_samples - begin;
        lk_range own = lk__trainer_own_samples(trainer, lk__min(left, plan->batch_size));
        status = lk_ledger_add(p->ledger, order + begin + own.begin, own.end - own.begin);
    }
    lk__free(order);
    return status;
}

/* Sets the totals: to those of the trainer's position if this is the training of the epoch that it is in, else to 0. */
static lk_status pass_enter(lk_trainer *trainer, lk_pass *p, int64_t epoch, bool training)
{
    const lk_position *at = &trainer->progress.position;
    lk_ledger_reset(p->ledger);
    p->first = 0;
    p->totals = (lk_epoch_totals){0};
    p->entered = p->began = lk__seconds();
    if (training && at->epoch == epoch && at->batch > 0) {
        p->first = at->batch;
        p->totals = (lk_epoch_totals){.so_far = at->so_far,
                                      .taken_steps = at->batch,
                                      .samples = at->samples,
                                      .skipped = at->skipped,
                                      .rate = at->rate};
        p->began -= at->seconds;
        LK_TRY(pass_note_earlier_samples(trainer, p, epoch));
    }
    if (training)
        trainer->progress.totals = p->totals;
    return LK_OK;
}

lk_status lk__pass_start(lk_trainer *trainer, lk_pass *p, int64_t epoch, bool training)
{
    LK_TRY(pass_enter(trainer, p, epoch, training));
    return lk_loader_start_at(p->loader, epoch, p->first);
}

static lk_status pass_report_rest(lk_trainer *trainer, bool before_evaluation)
{
    lk_rest_report report = {.epoch = trainer->progress.epoch + 1,
                             .batch = trainer->progress.position.batch,
                             .steps = trainer->progress.steps,
                             .before_evaluation = before_evaluation};
    return lk__callbacks_rest(&trainer->callbacks, trainer, &report);
}

/* If a callback wants it, waits for all steps and reports that training is at rest. */
static lk_status pass_rest_if_wanted(lk_trainer *trainer, lk_pass *p)
{
    const lk_update *update = &trainer->progress.update;
    bool is_update = p->pushed == update->first + update->batches;
    if (!p->evaluates || p->ended || !is_update ||
        !lk__callbacks_want_rest(&trainer->callbacks, trainer, trainer->progress.steps))
        return LK_OK;
    while (trainer->progress.n_pending > 0)
        LK_TRY(lk__pass_take(trainer, p, true));
    return p->stopped_by || lk__is_interrupted(trainer) ? LK_OK : pass_report_rest(trainer, false);
}

/* An update that has begun is brought to its end, so that the records hold no step behind the checkpoint. A stop takes
 * effect where it would without rests, in which no step is in flight. */
static bool pass_goes_on(const lk_trainer *trainer, const lk_pass *p, bool training)
{
    const lk_update *update = &trainer->progress.update;
    bool is_open = training && p->pushed > update->first && p->pushed < update->first + update->batches;
    bool is_stopped = p->stopped_by && p->pushed >= p->stop_at;
    return !p->ended && (is_open || (!is_stopped && !lk__is_interrupted(trainer)));
}

static lk_status pass_run_steps(lk_trainer *trainer, lk_pass *p, int64_t epoch, bool training)
{
    LK_TRY(lk__pass_start(trainer, p, epoch, training));
    while (pass_goes_on(trainer, p, training)) {
        if (trainer->progress.n_pending == LK_RUN_AHEAD)
            LK_TRY(lk__pass_take(trainer, p, training));
        if (pass_goes_on(trainer, p, training))
            LK_TRY(lk__pass_push(trainer, p));
        if (training) /* reports the oldest step in flight */
            lk__heartbeat_step(trainer->progress.steps - lk__max(trainer->progress.n_pending - 1, 0));
        LK_TRY(pass_rest_if_wanted(trainer, p));
    }
    while (trainer->progress.n_pending > 0)
        LK_TRY(lk__pass_take(trainer, p, training));
    bool is_wanted = p->evaluates && p->ended && !lk__is_interrupted(trainer) &&
                     lk__callbacks_want_rest(&trainer->callbacks, trainer, trainer->progress.steps);
    return is_wanted ? pass_report_rest(trainer, true) : LK_OK;
}

static lk_status pass_take_remote_step(lk_trainer *trainer, lk_pass *p, bool *any)
{
    lk_pending_step step;
    lk_step_metrics found;
    lk__activity_remain(LK_ACTIVITY_WAIT_REMOTE, "wait for workers");
    LK_TRY(lk__ps_next_step(trainer, &step, &found, any));
    if (!*any)
        return LK_OK;
    lk__activity_set(LK_ACTIVITY_WORK, "training");
    lk__heartbeat_step(trainer->progress.steps);
    return pass_account(trainer, p, true, &step, &found);
}

/* Workers are paused. When their steps are finished, pulls the servers' variables and reports that training is at rest.
 */
static lk_status pass_rest_workers(lk_trainer *trainer, bool *pausing)
{
    if (!lk__ps_is_at_rest(trainer) || lk__ps_epoch_is_over(trainer))
        return LK_OK;
    LK_TRY(lk__ps_pull(trainer));
    lk__ps_pause(trainer, false);
    *pausing = false;
    return lk__ps_has_all(trainer) ? pass_report_rest(trainer, false)
                                   : LK_OK; /* not all, if an interrupt ended the wait for servers */
}

/* The chief of strategy parameter-server: remote workers run the steps, and finish them in any order. */
static lk_status pass_run_remote_steps(lk_trainer *trainer, lk_pass *p, int64_t epoch)
{
    bool stopped = false, pausing = false, any;
    LK_TRY(pass_enter(trainer, p, epoch, true));
    LK_TRY(pass_hand_out_epoch(trainer, p->first));
    if (p->evaluates && trainer->data.val_loader)
        LK_TRY(lk_loader_start(trainer->data.val_loader, 0));
    while (!lk__ps_epoch_is_over(trainer)) {
        LK_TRY(pass_take_remote_step(trainer, p, &any));
        if (!stopped && (p->stopped_by || lk__is_interrupted(trainer))) {
            lk__ps_stop_epoch(trainer);
            stopped = true;
        }
        if (any && !stopped && !pausing &&
            lk__callbacks_want_rest(&trainer->callbacks, trainer, trainer->progress.steps)) {
            lk__ps_pause(trainer, true);
            pausing = true;
        }
        if (pausing && !stopped)
            LK_TRY(pass_rest_workers(trainer, &pausing));
    }
    p->ended = p->totals.taken_steps == trainer->plan.steps_per_epoch;
    return lk__ps_pull(trainer);
}

lk_status lk__pass_run(lk_trainer *trainer, lk_pass *p, int64_t epoch, bool training)
{
    trainer->progress.in_pass = true;
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WORK, training ? "training" : "evaluation");
    lk_status status = training && trainer->server.chief ? pass_run_remote_steps(trainer, p, epoch)
                                                         : pass_run_steps(trainer, p, epoch, training);
    lk__activity_end(before);
    trainer->progress.in_pass = false;
    return status;
}

lk_status lk__check_no_pass(const lk_trainer *trainer, const char *what)
{
    if (trainer->progress.in_pass)
        LK_FAIL(LK_ERR_STATE, "%s: steps of fit are in flight; from epoch_end on it can be asked for", what);
    return LK_OK;
}
