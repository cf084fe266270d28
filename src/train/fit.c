/* Epochs: what training, evaluation and their reports come to. */
#include "train/pass.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/status.h"
#include "train/checkpoint.h"
#include "train/fit.h"

#include <math.h>

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

static lk_status evaluation_step_taken(void *user, const lk__pass *p, const lk__pending_step *step,
                                       const lk__step_metrics *found, const char **stopped_by)
{
    (void)step, (void)found, (void)stopped_by;
    lk_trainer *trainer = user;
    lk_eval_report report = {.epoch = trainer->epoch,
                             .step = p->taken_steps,
                             .steps = lk_loader_batches(p->loader),
                             .so_far = p->so_far,
                             .seconds = lk__seconds() - p->began};
    return lk__callbacks_eval_step(&trainer->callbacks, trainer, &report);
}

lk_status lk_trainer_evaluate(lk_trainer *trainer, lk_metrics *metrics)
{
    lk__pass p = {.loader = trainer->val_loader,
                  .ledger = trainer->val_ledger,
                  .push = lk__evaluate_step,
                  .taken = evaluation_step_taken,
                  .user = trainer};
    *metrics = (lk_metrics){0};
    LK_TRY(lk__check_no_pass(trainer, "evaluation"));
    if (!trainer->val_set)
        return LK_OK;
    lk_status status = lk__or_give_up(trainer, lk__pass_run(trainer, &p, 0, false));
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
    LK_TRY(lk__train_step(trainer, batch, lk__rate_of_batch(trainer, batch, true)));
    return lk__audit(trainer, false);
}

static lk_status push_plain(lk_trainer *trainer, lk_batch *batch)
{
    LK_TRY(lk__train_step(trainer, batch, lk__rate_of_batch(trainer, batch, false)));
    return lk__audit(trainer, false);
}

/* --- fit ---------------------------------------------------------------------------------------------------------- */

static lk_status step_taken(void *user, const lk__pass *p, const lk__pending_step *step, const lk__step_metrics *found,
                            const char **stopped_by)
{
    lk__fit *fit = user;
    lk_trainer *trainer = fit->trainer;
    double time = lk__seconds();
    if (p->taken_steps - p->first == (trainer->plan.steps_per_epoch - p->first) / 10 &&
        trainer->epoch == fit->first_epoch) {
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

static void count_throughput(lk__fit *fit, const lk__pass *p, double seconds)
{
    if (fit->trainer->epoch > fit->first_epoch) {
        fit->seconds += seconds;
        fit->images += p->samples;
        return;
    }
    bool warm = fit->warm_images > 0;
    fit->first_seconds = p->began + seconds - (warm ? fit->warm_end : p->entered);
    fit->first_images = p->samples - (warm ? fit->warm_images : fit->first_samples);
}

/* What was restored stays where this run has timed nothing. */
static void set_throughput(lk__fit *fit)
{
    double seconds = fit->images > 0 ? fit->seconds : fit->first_seconds;
    int64_t images = fit->images > 0 ? fit->images : fit->first_images;
    if (seconds > 0 && images > 0)
        fit->result->images_per_second = (double)images / seconds;
}

/* *complete: the epoch was not ended before its last step. */
static lk_status train_epoch(lk__fit *fit, lk_epoch_report *report, bool *complete)
{
    lk_trainer *trainer = fit->trainer;
    lk_train_result *result = fit->result;
    lk__pass p = {.loader = trainer->train_loader,
                  .ledger = trainer->train_ledger,
                  .push = push_with_hooks,
                  .taken = step_taken,
                  .user = fit,
                  .evaluates = true};
    double flops = flops_so_far(trainer);
    trainer->epoch_open = true;
    lk_status status = lk__pass_run(trainer, &p, trainer->epoch, true);
    report->epoch = trainer->epoch + 1;
    report->steps = trainer->steps;
    report->samples = p.samples;
    report->seconds = lk__seconds() - p.began;
    report->train = p.so_far;
    report->rate = p.rate;
    report->skipped_steps = p.skipped;
    report->images_per_second = (double)p.samples / report->seconds;
    result->steps += p.taken_steps;
    result->samples_seen += p.samples;
    result->seconds += report->seconds;
    result->stopped_by = p.stopped_by;
    LK_TRY(status);
    int64_t samples = p.samples - (trainer->epoch == fit->first_epoch ? fit->first_samples : 0);
    if (samples > 0)
        fit->flops_per_image = (flops_so_far(trainer) - flops) / (double)samples;
    count_throughput(fit, &p, report->seconds);
    if (lk__is_interrupted(trainer))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted in epoch %lld after step %lld", (long long)report->epoch,
                (long long)p.taken_steps);
    *complete = p.ended;
    return LK_OK;
}

/* Training may go on from here: `report` is of the epoch that has ended, NULL: of none. */
static lk_status rest(lk__fit *fit, const lk_epoch_report *report, bool interrupted)
{
    lk_trainer *trainer = fit->trainer;
    bool ends = !interrupted && (fit->result->stopped_by || trainer->epoch >= trainer->plan.epochs);
    lk_rest_report rest = {.epoch = report ? report->epoch : trainer->position.epoch + 1,
                           .batch = report ? trainer->plan.steps_per_epoch : trainer->position.batch,
                           .steps = trainer->position.steps,
                           .epoch_end = report,
                           .ends = ends,
                           .interrupted = interrupted};
    set_throughput(fit);
    if (trainer->chief && !lk__ps_has_all(trainer)) {
        if (trainer->config.checkpoint_dir)
            lk__log(LK_LOG_WARNING,
                    "what was handed out could not be brought to its end: there is nothing to go on from here");
        return LK_OK;
    }
    return lk__callbacks_rest(&trainer->callbacks, trainer, &rest);
}

static lk_status end_epoch(lk__fit *fit, lk_epoch_report *report)
{
    lk_trainer *trainer = fit->trainer;
    trainer->epoch++;
    trainer->epoch_open = false;
    fit->result->epochs++;
    LK_TRY(check_ledger(trainer, trainer->train_ledger, "training", &report->train_ledger));
    LK_TRY(lk__measure_statistics(trainer));
    LK_TRY(lk_trainer_evaluate(trainer, &report->val));
    if (trainer->val_set)
        LK_TRY(check_ledger(trainer, trainer->val_ledger, "validation", &report->val_ledger));
    fit->result->val = report->val;
    double ended = lk__seconds();
    report->epoch_seconds = ended - fit->epoch_began;
    report->total_seconds = ended - fit->began;
    LK_TRY(lk__callbacks_epoch_end(&trainer->callbacks, trainer, report, &fit->result->stopped_by));
    lk__position *at = &trainer->position;
    *at = (lk__position){
        .epoch = trainer->epoch, .steps = at->steps, .updates = at->updates, .samples_seen = at->samples_seen};
    fit->whole = *fit->result;
    return rest(fit, report, false);
}

static lk_status run_epoch(lk__fit *fit)
{
    lk_epoch_report report = {.train_ledger = {.first_bad = -1}, .val_ledger = {.first_bad = -1}};
    lk_trainer *trainer = fit->trainer;
    bool complete = false;
    LK_TRY(lk__callbacks_epoch_begin(&trainer->callbacks, trainer, trainer->epoch + 1));
    if (trainer->position.batch == 0)
        fit->epoch_began = lk__seconds();
    LK_TRY(train_epoch(fit, &report, &complete));
    return complete ? end_epoch(fit, &report) : rest(fit, NULL, false);
}

/* What an interrupt ends can go on from where it ended. */
static lk_status run_epochs(lk__fit *fit)
{
    lk_trainer *trainer = fit->trainer;
    while (trainer->epoch < trainer->plan.epochs && !fit->result->stopped_by) {
        lk_status status = run_epoch(fit);
        lk__drop_pending(trainer);
        if (status == LK_ERR_INTERRUPTED) {
            lk_error_state kept;
            lk__error_save(&kept);
            lk_error_clear();
            if (rest(fit, NULL, true) != LK_OK)
                return lk_error_status();
            lk__error_restore(&kept);
        }
        LK_TRY(status);
    }
    return LK_OK;
}

/* After an interrupt the parameters are whole: the step at hand was finished. */
static lk_status finish_result(lk__fit *fit, lk_status status)
{
    lk_train_result *result = fit->result;
    set_throughput(fit);
    /* Workers elsewhere do not say what they compute. */
    result->flops_per_second =
        fit->trainer->chief || fit->flops_per_image == 0 ? NAN : result->images_per_second * fit->flops_per_image;
    result->total_seconds = lk__seconds() - fit->began;
    if (status == LK_OK)
        status = lk__add_over_processes(fit->trainer, &result->flops_per_second);
    if (status == LK_OK || status == LK_ERR_INTERRUPTED) {
        lk_status digested = lk_trainer_digest(fit->trainer, 0, result->digest);
        if (digested == LK_OK)
            digested = lk_trainer_state_digest(fit->trainer, result->state_digest);
        return status == LK_OK ? digested : status;
    }
    return status;
}

/* What the checkpoint says of training so far goes to whoever remembered it. */
static lk_status take_up(lk__fit *fit)
{
    lk_trainer *trainer = fit->trainer;
    if (!trainer->resumed)
        return LK_OK;
    lk_state own = {.in = lk__checkpoint_member(trainer->resumed, "fit")};
    lk_state others = {.in = lk__checkpoint_member(trainer->resumed, "callbacks")};
    LK_TRY(lk__fit_resume(fit, &own));
    return lk__callbacks_resume(&trainer->callbacks, trainer, &others);
}

lk_status lk_trainer_fit(lk_trainer *trainer, lk_train_result *result)
{
    *result = (lk_train_result){.images_per_second = NAN};
    if (trainer->epoch_open)
        LK_FAIL(LK_ERR_STATE, "training: an epoch was left half way; lk_trainer_run has to end it first");
    LK_TRY(lk__check_no_pass(trainer, "training"));
    if (trainer->role == LK_TRAIN_WORKER)
        LK_FAIL(LK_ERR_STATE, "training: a worker of strategy parameter-server works for its chief: lk_trainer_work");
    lk__fit fit = {.trainer = trainer, .result = result, .began = lk__seconds(), .first_epoch = trainer->epoch};
    lk__now(LK_DOING_WORK, "records");
    LK_TRY(lk__or_give_up(trainer, take_up(&fit)));
    trainer->fit = &fit;
    trainer->at_rest = true;
    lk_status status = lk__callbacks_train_begin(&trainer->callbacks, trainer);
    trainer->at_rest = false;
    if (status == LK_OK)
        status = run_epochs(&fit);
    if (status == LK_OK)
        status = lk__audit(trainer, true);
    result->audits = trainer->audits;
    status = lk__or_give_up(trainer, finish_result(&fit, status));
    status = lk__or_give_up(trainer, lk__callbacks_train_end(&trainer->callbacks, trainer, result, status));
    trainer->fit = NULL;
    lk__ps_end(trainer, status);
    lk__end_interruption(trainer);
    return status;
}

/* --- steps alone -------------------------------------------------------------------------------------------------- */

static lk_status run_step(lk_trainer *trainer, lk__pass *p)
{
    if (!trainer->epoch_open) {
        while (trainer->n_pending > 0)
            LK_TRY(lk__pass_take(trainer, p, true));
        LK_TRY(lk__pass_start(trainer, p, trainer->epoch, true));
        trainer->epoch_open = true;
    }
    if (trainer->n_pending == LK_RUN_AHEAD)
        LK_TRY(lk__pass_take(trainer, p, true));
    LK_TRY(lk__pass_push(trainer, p));
    trainer->epoch_open = !p->ended;
    trainer->epoch += p->ended;
    return LK_OK;
}

static lk_status run_steps_alone(lk_trainer *trainer, lk__pass *p, int64_t steps)
{
    for (int64_t step = 0; step < steps && !lk__is_interrupted(trainer); step++)
        LK_TRY(run_step(trainer, p));
    while (trainer->n_pending > 0)
        LK_TRY(lk__pass_take(trainer, p, true));
    return LK_OK;
}

lk_status lk_trainer_run(lk_trainer *trainer, int64_t steps)
{
    lk__pass p = {
        .loader = trainer->train_loader, .ledger = trainer->train_ledger, .push = push_plain, .began = lk__seconds()};
    int64_t before = trainer->steps;
    LK_TRY(lk__check_no_pass(trainer, "training steps"));
    if (trainer->applies_elsewhere)
        LK_FAIL(LK_ERR_STATE, "training steps: strategy parameter-server has its workers take them: lk_trainer_fit");
    if (trainer->epoch_open)
        lk__pass_take_up(trainer, &p);
    LK_TRY(lk__or_give_up(trainer, run_steps_alone(trainer, &p, steps)));
    if (lk__end_interruption(trainer))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted after %lld of %lld steps",
                (long long)(trainer->steps - before), (long long)steps);
    return LK_OK;
}
