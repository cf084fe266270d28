/* See pass.h. */
#include "train/pass.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"

#include <math.h>
#include <time.h>

double lk__seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

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

static void warn_once(lk__pass *p, const lk__pending_step *step, const char *what)
{
    if (!p->warned)
        lk__log(LK_LOG_WARNING, "epoch %lld, step %lld: %s; a smaller --base-lr or --clip-norm may help",
                (long long)step->update.epoch + 1, (long long)step->batch + 1, what);
    p->warned = true;
}

/* The epoch's means are as if the batches of a skipped update had not been there. Only the update's last batch says
 * that it was skipped; a loss that is not finite says so earlier. */
static void add_training_step(const lk_trainer *trainer, lk__pass *p, const lk__pending_step *step,
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

static lk_status guard(lk_trainer *trainer, lk__pass *p, const lk__pending_step *step, const lk__step_metrics *found)
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

/* The end of an update is a place to go on from; of workers' updates it is where nothing is under way. */
static void advance(lk_trainer *trainer, const lk__pass *p, const lk__pending_step *step)
{
    lk__position *at = &trainer->position;
    bool rolls_over = !p->evaluates && step->batch + 1 == trainer->plan.steps_per_epoch;
    if (step->batch + 1 < step->update.first + step->update.batches)
        return;
    int64_t over = trainer->chief ? p->taken_steps : step->batch + 1; /* workers finish them in any order */
    *at = (lk__position){.epoch = step->update.epoch + rolls_over,
                         .batch = rolls_over ? 0 : over,
                         .steps = at->steps + step->update.batches,
                         .updates = at->updates + 1,
                         .samples_seen = at->samples_seen + step->update.samples,
                         .samples = rolls_over ? 0 : p->samples,
                         .so_far = p->so_far,
                         .skipped = p->skipped,
                         .rate = p->rate,
                         .seconds = lk__seconds() - p->began};
}

static lk_status account(lk_trainer *trainer, lk__pass *p, bool training, const lk__pending_step *step,
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

lk_status lk__pass_take(lk_trainer *trainer, lk__pass *p, bool training)
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

double lk__rate_of_batch(lk_trainer *trainer, const lk_batch *batch, bool hooks)
{
    int64_t accumulate = trainer->plan.accumulate;
    bool is_first = batch->index % accumulate == 0;
    return is_first ? rate_of(trainer, batch->epoch, batch->index / accumulate, hooks) : trainer->update.rate;
}

static lk_status hand_out_epoch(lk_trainer *trainer, int64_t done)
{
    int64_t n = trainer->plan.steps_per_epoch;
    double *rates = lk__calloc((size_t)n, sizeof *rates);
    if (!rates)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        rates[i] = rate_of(trainer, trainer->epoch, i, true);
    lk_status status = lk__ps_begin_epoch(trainer, done, rates);
    lk__free(rates);
    return status;
}

/* --- a pass ------------------------------------------------------------------------------------------------------- */

/* What comes behind an epoch's training is prepared from now on: its last steps are still running. */
static lk_status start_ahead(lk_trainer *trainer, const lk__pass *p)
{
    if (p->loader != trainer->train_loader)
        return LK_OK;
    if (p->evaluates && trainer->val_loader)
        LK_TRY(lk_loader_start(trainer->val_loader, 0));
    bool another = trainer->epoch + 1 < trainer->plan.epochs;
    return another ? lk_loader_start(trainer->train_loader, trainer->epoch + 1) : LK_OK;
}

lk_status lk__pass_push(lk_trainer *trainer, lk__pass *p)
{
    lk_batch *batch;
    LK_TRY(lk_loader_next(p->loader, &batch));
    p->ended = !batch || batch->index + 1 == lk_loader_batches(p->loader);
    if (!batch)
        return start_ahead(trainer, p);
    p->pushed = batch->index + 1;
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

/* Samples of the epoch's batches that are through already count as used. */
static lk_status note_earlier(const lk_trainer *trainer, const lk__pass *p, int64_t epoch)
{
    const lk_plan *plan = &trainer->plan;
    int64_t *order = lk__calloc((size_t)plan->train_samples, sizeof *order);
    lk_status status = order ? lk_sample_order(plan->train_samples, plan->seed, epoch, true, order) : LK_ERR_MEMORY;
    for (int64_t i = 0; i < p->first && status == LK_OK; i++) {
        int64_t begin = i * plan->batch_size, left = plan->train_samples - begin;
        lk_range own = lk__own_samples(trainer, left < plan->batch_size ? left : plan->batch_size);
        status = lk_ledger_add(p->ledger, order + begin + own.begin, own.end - own.begin);
    }
    lk__free(order);
    return status;
}

void lk__pass_take_up(const lk_trainer *trainer, lk__pass *p)
{
    const lk__position *at = &trainer->position;
    p->first = p->taken_steps = at->batch;
    p->samples = at->samples;
    p->so_far = at->so_far;
    p->skipped = at->skipped;
    p->rate = at->rate;
}

/* All but the loader's part of lk__pass_start. */
static lk_status enter(lk_trainer *trainer, lk__pass *p, int64_t epoch, bool training)
{
    const lk__position *at = &trainer->position;
    lk_ledger_reset(p->ledger);
    p->first = p->taken_steps = p->samples = p->skipped = 0;
    p->so_far = (lk_metrics){0};
    p->entered = p->began = lk__seconds();
    if (training && at->epoch == epoch && at->batch > 0) {
        lk__pass_take_up(trainer, p);
        p->began -= at->seconds;
        LK_TRY(note_earlier(trainer, p, epoch));
    }
    return LK_OK;
}

lk_status lk__pass_start(lk_trainer *trainer, lk__pass *p, int64_t epoch, bool training)
{
    LK_TRY(enter(trainer, p, epoch, training));
    return lk_loader_start_at(p->loader, epoch, p->first);
}

static lk_status tell_rest(lk_trainer *trainer)
{
    lk_rest_report report = {.epoch = trainer->epoch + 1, .batch = trainer->position.batch, .steps = trainer->steps};
    return lk__callbacks_rest(&trainer->callbacks, trainer, &report);
}

/* Where a callback wants to have a look at where training stands, all steps are waited for. */
static lk_status rest_if_wanted(lk_trainer *trainer, lk__pass *p)
{
    const lk__update *update = &trainer->update;
    bool is_update = p->pushed == update->first + update->batches;
    if (!p->evaluates || p->ended || !is_update ||
        !lk__callbacks_want_rest(&trainer->callbacks, trainer, trainer->steps))
        return LK_OK;
    while (trainer->n_pending > 0)
        LK_TRY(lk__pass_take(trainer, p, true));
    return p->stopped_by || lk__is_interrupted(trainer) ? LK_OK : tell_rest(trainer);
}

/* The oldest step that is under way. */
static void tell_step(const lk_trainer *trainer)
{
    lk__heartbeat_step(trainer->steps - (trainer->n_pending > 0 ? trainer->n_pending - 1 : 0));
}

static lk_status run_steps(lk_trainer *trainer, lk__pass *p, int64_t epoch, bool training)
{
    LK_TRY(lk__pass_start(trainer, p, epoch, training));
    while (!p->ended && !p->stopped_by && !lk__is_interrupted(trainer)) {
        if (trainer->n_pending == LK_RUN_AHEAD)
            LK_TRY(lk__pass_take(trainer, p, training));
        if (!p->stopped_by && !lk__is_interrupted(trainer))
            LK_TRY(lk__pass_push(trainer, p));
        if (training)
            tell_step(trainer);
        LK_TRY(rest_if_wanted(trainer, p));
    }
    while (trainer->n_pending > 0)
        LK_TRY(lk__pass_take(trainer, p, training));
    return LK_OK;
}

static lk_status take_elsewhere(lk_trainer *trainer, lk__pass *p, bool *any)
{
    lk__pending_step step;
    lk__step_metrics found;
    lk__still(LK_DOING_OTHERS, "wait for workers");
    LK_TRY(lk__ps_next_step(trainer, &step, &found, any));
    if (!*any)
        return LK_OK;
    lk__now(LK_DOING_WORK, "training");
    lk__heartbeat_step(trainer->steps);
    return account(trainer, p, true, &step, &found);
}

/* Workers wait until all that they had is through, and while servers send what they have. */
static lk_status rest_elsewhere(lk_trainer *trainer, bool *pausing)
{
    if (!lk__ps_is_at_rest(trainer) || lk__ps_epoch_is_over(trainer))
        return LK_OK;
    LK_TRY(lk__ps_pull(trainer));
    lk__ps_pause(trainer, false);
    *pausing = false;
    return lk__ps_has_all(trainer) ? tell_rest(trainer) : LK_OK; /* an interrupt ends the wait for servers */
}

/* The same where workers elsewhere take the steps (parameter-server), in whatever order they are through. */
static lk_status run_steps_elsewhere(lk_trainer *trainer, lk__pass *p, int64_t epoch)
{
    bool stopped = false, pausing = false, any;
    LK_TRY(enter(trainer, p, epoch, true));
    LK_TRY(hand_out_epoch(trainer, p->first));
    if (p->evaluates && trainer->val_loader)
        LK_TRY(lk_loader_start(trainer->val_loader, 0));
    while (!lk__ps_epoch_is_over(trainer)) {
        LK_TRY(take_elsewhere(trainer, p, &any));
        if (!stopped && (p->stopped_by || lk__is_interrupted(trainer))) {
            lk__ps_stop_epoch(trainer);
            stopped = true;
        }
        if (any && !stopped && !pausing && lk__callbacks_want_rest(&trainer->callbacks, trainer, trainer->steps)) {
            lk__ps_pause(trainer, true);
            pausing = true;
        }
        if (pausing && !stopped)
            LK_TRY(rest_elsewhere(trainer, &pausing));
    }
    p->ended = p->taken_steps == trainer->plan.steps_per_epoch;
    return lk__ps_pull(trainer);
}

lk_status lk__pass_run(lk_trainer *trainer, lk__pass *p, int64_t epoch, bool training)
{
    trainer->in_pass = true;
    lk__doing before = lk__now_for_a_while(LK_DOING_WORK, training ? "training" : "evaluation");
    lk_status status =
        training && trainer->chief ? run_steps_elsewhere(trainer, p, epoch) : run_steps(trainer, p, epoch, training);
    lk__now_again(before);
    trainer->in_pass = false;
    return status;
}

lk_status lk__check_no_pass(const lk_trainer *trainer, const char *what)
{
    if (trainer->in_pass)
        LK_FAIL(LK_ERR_STATE, "%s: steps of fit are under way; from epoch_end on it can be asked for", what);
    return LK_OK;
}
