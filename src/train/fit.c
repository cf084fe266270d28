/* Epochs: training, evaluation and their reports. */
#include "train/fit.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/status.h"
#include "train/audit.h"
#include "train/callbacks/configured.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_read.h"
#include "train/fit_state.h"
#include "train/parameter_server/ps_chief.h"
#include "train/pass.h"
#include "train/processes.h"
#include "train/step/precise_bn.h"
#include "train/step/step.h"
#include "train/trainer.h"

#include <math.h>

static lk_status fit_check_ledger(const lk_trainer *trainer, lk_ledger *ledger, const char *what,
                                  lk_ledger_report *report)
{
    LK_TRY(lk__merge_ledger(trainer, ledger));
    lk_ledger_check(ledger, report);
    if (report->first_bad >= 0)
        LK_FAIL(LK_ERR_STATE, "ledger: %s sample %lld was not used exactly once in this epoch", what,
                (long long)report->first_bad);
    return LK_OK;
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

static lk_status fit_eval_step_taken(void *user, const lk_pass *p, const lk_pending_step *step,
                                     const lk_step_metrics *found, const char **stopped_by)
{
    (void)step, (void)found, (void)stopped_by;
    lk_trainer *trainer = user;
    lk_eval_report report = {.epoch = trainer->progress.epoch,
                             .step = p->totals.taken_steps,
                             .steps = lk_loader_batches(p->loader),
                             .so_far = p->totals.so_far,
                             .seconds = lk__seconds() - p->began};
    return lk__callbacks_eval_step(&trainer->callbacks, trainer, &report);
}

lk_status lk_trainer_evaluate(lk_trainer *trainer, lk_metrics *metrics)
{
    lk_pass p = {.loader = trainer->data.val_loader,
                 .ledger = trainer->data.val_ledger,
                 .push = lk__evaluate_step,
                 .taken = fit_eval_step_taken,
                 .user = trainer};
    *metrics = (lk_metrics){0};
    LK_TRY(lk__check_no_pass(trainer, "evaluation"));
    if (!trainer->data.val_set)
        return LK_OK;
    LK_TRY(lk__trainer_swap_average(trainer, LK_OK));
    lk_status status = lk__or_give_up(trainer, lk__pass_run(trainer, &p, 0, false));
    lk__pending_drop(trainer);
    LK_TRY(lk__trainer_swap_average(trainer, status));
    if (!p.ended) {
        if (!trainer->fit) /* fit ends by the interrupt too */
            lk__end_interruption(trainer);
        LK_FAIL(LK_ERR_INTERRUPTED, "evaluation: interrupted after %lld samples", (long long)p.totals.samples);
    }
    *metrics = p.totals.so_far;
    return LK_OK;
}

/* --- training steps ----------------------------------------------------------------------------------------------- */

static lk_status fit_push_step(lk_trainer *trainer, lk_batch *batch)
{
    LK_TRY(lk__train_step(trainer, batch, lk__rate_of_batch(trainer, batch, true)));
    return lk__audit(trainer, false);
}

static lk_status fit_push_single_step(lk_trainer *trainer, lk_batch *batch)
{
    LK_TRY(lk__train_step(trainer, batch, lk__rate_of_batch(trainer, batch, false)));
    return lk__audit(trainer, false);
}

/* --- fit ---------------------------------------------------------------------------------------------------------- */

static lk_status fit_step_taken(void *user, const lk_pass *p, const lk_pending_step *step, const lk_step_metrics *found,
                                const char **stopped_by)
{
    lk_fit *fit = user;
    lk_trainer *trainer = fit->trainer;
    double time = lk__seconds();
    if (p->totals.taken_steps - p->first == (trainer->plan.steps_per_epoch - p->first) / 10 &&
        trainer->progress.epoch == fit->first_epoch) {
        fit->warm_end = time;
        fit->warm_images = p->totals.samples;
    }
    lk_step_report report = {.epoch = trainer->progress.epoch + 1,
                             .step = p->totals.taken_steps,
                             .steps = trainer->plan.steps_per_epoch,
                             .total = trainer->progress.steps - trainer->progress.n_pending,
                             .samples = p->totals.samples,
                             .batch = found->metrics,
                             .so_far = p->totals.so_far,
                             .rate = step->update.rate,
                             .seconds = time - p->began,
                             .skipped = found->skipped};
    return lk__callbacks_step_end(&trainer->callbacks, trainer, &report, stopped_by);
}

static double fit_device_flops(const lk_trainer *trainer)
{
    double flops = 0;
    for (int d = 0; d < trainer->n_devices; d++)
        flops += lk_device_flops(trainer->devices[d]);
    return flops;
}

static void fit_count_throughput(lk_fit *fit, const lk_pass *p, double seconds)
{
    if (fit->trainer->progress.epoch > fit->first_epoch) {
        fit->seconds += seconds;
        fit->images += p->totals.samples;
        return;
    }
    bool warm = fit->warm_images > 0;
    fit->first_seconds = p->began + seconds - (warm ? fit->warm_end : p->entered);
    fit->first_images = p->totals.samples - (warm ? fit->warm_images : fit->first_samples);
}

/* If this run has timed nothing, the throughput from the checkpoint stays. */
static void fit_set_throughput(lk_fit *fit)
{
    double seconds = fit->images > 0 ? fit->seconds : fit->first_seconds;
    int64_t images = fit->images > 0 ? fit->images : fit->first_images;
    if (seconds > 0 && images > 0)
        fit->result->images_per_second = (double)images / seconds;
}

/* With the epochs and steps before a checkpoint, of an earlier call, and of lk_trainer_run. */
static void fit_count_whole(lk_fit *fit)
{
    const lk_trainer_progress *progress = &fit->trainer->progress;
    fit->result->epochs = progress->epoch;
    fit->result->steps = progress->position.steps;
    fit->result->samples_seen = progress->position.samples_seen;
    fit->result->resumed_steps = fit->trainer->resumed ? fit->trainer->resumed->info.steps : 0;
}

/* *complete: the epoch was not ended before its last step. */
static lk_status fit_train_epoch(lk_fit *fit, lk_epoch_report *report, bool *complete)
{
    lk_trainer *trainer = fit->trainer;
    lk_train_result *result = fit->result;
    lk_pass p = {.loader = trainer->data.train_loader,
                 .ledger = trainer->data.train_ledger,
                 .push = fit_push_step,
                 .taken = fit_step_taken,
                 .user = fit,
                 .evaluates = true};
    double flops = fit_device_flops(trainer);
    trainer->progress.epoch_open = true;
    lk_status status = lk__or_give_up(trainer, lk__pass_run(trainer, &p, trainer->progress.epoch, true));
    report->epoch = trainer->progress.epoch + 1;
    report->steps = trainer->progress.steps;
    report->samples = p.totals.samples;
    report->seconds = lk__seconds() - p.began;
    report->train = p.totals.so_far;
    report->rate = p.totals.rate;
    report->skipped_steps = p.totals.skipped;
    report->images_per_second = (double)p.totals.samples / report->seconds;
    fit_count_whole(fit);
    result->seconds += report->seconds;
    result->stopped_by = p.stopped_by;
    LK_TRY(status);
    int64_t samples = p.totals.samples - (trainer->progress.epoch == fit->first_epoch ? fit->first_samples : 0);
    if (samples > 0)
        fit->flops_per_image = (fit_device_flops(trainer) - flops) / (double)samples;
    fit_count_throughput(fit, &p, report->seconds);
    fit->is_interrupted = lk__is_interrupted(trainer);
    if (fit->is_interrupted)
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted in epoch %lld after step %lld", (long long)report->epoch,
                (long long)p.totals.taken_steps);
    *complete = p.ended;
    return LK_OK;
}

/* Nothing is in flight: the callbacks may save a checkpoint. report: of the epoch that has ended; NULL: none has. */
static lk_status fit_rest(lk_fit *fit, const lk_epoch_report *report, bool interrupted)
{
    lk_trainer *trainer = fit->trainer;
    bool ends = !interrupted && (fit->result->stopped_by || trainer->progress.epoch >= trainer->plan.epochs);
    lk_rest_report rest = {.epoch = report ? report->epoch : trainer->progress.position.epoch + 1,
                           .batch = report ? trainer->plan.steps_per_epoch : trainer->progress.position.batch,
                           .steps = trainer->progress.position.steps,
                           .epoch_end = report,
                           .ends = ends,
                           .interrupted = interrupted};
    fit_set_throughput(fit);
    if (trainer->server.chief && !lk__ps_has_all(trainer)) {
        if (trainer->config.checkpoints.dir)
            lk__log(LK_LOG_WARNING,
                    "what was handed out could not be brought to its end: there is nothing to go on from here");
        return LK_OK;
    }
    return lk__callbacks_rest(&trainer->callbacks, trainer, &rest);
}

/* No callback has seen the end of the epoch yet, so training can resume from here after an interrupt. */
static lk_status fit_evaluate_epoch(lk_fit *fit, lk_metrics *val)
{
    lk_trainer *trainer = fit->trainer;
    lk_status status = lk__measure_statistics(trainer);
    if (status == LK_OK)
        status = lk_trainer_evaluate(trainer, val);
    fit->is_interrupted = status == LK_ERR_INTERRUPTED && lk__is_interrupted(trainer);
    return status;
}

static lk_status fit_end_epoch(lk_fit *fit, lk_epoch_report *report)
{
    lk_trainer *trainer = fit->trainer;
    trainer->progress.epoch++;
    trainer->progress.epoch_open = false;
    fit_count_whole(fit);
    LK_TRY(fit_check_ledger(trainer, trainer->data.train_ledger, "training", &report->train_ledger));
    LK_TRY(fit_evaluate_epoch(fit, &report->val));
    if (trainer->data.val_set)
        LK_TRY(fit_check_ledger(trainer, trainer->data.val_ledger, "validation", &report->val_ledger));
    fit->result->val = report->val;
    double ended = lk__seconds();
    report->epoch_seconds = ended - fit->epoch_began;
    report->total_seconds = ended - fit->began;
    LK_TRY(lk__callbacks_epoch_end(&trainer->callbacks, trainer, report, &fit->result->stopped_by));
    lk_position *at = &trainer->progress.position;
    *at = (lk_position){
        .epoch = trainer->progress.epoch, .steps = at->steps, .updates = at->updates, .samples_seen = at->samples_seen};
    fit->whole = *fit->result;
    return fit_rest(fit, report, false);
}

static lk_status fit_run_epoch(lk_fit *fit)
{
    lk_epoch_report report = {.train_ledger = {.first_bad = -1}, .val_ledger = {.first_bad = -1}};
    lk_trainer *trainer = fit->trainer;
    bool complete = false;
    LK_TRY(lk__callbacks_epoch_begin(&trainer->callbacks, trainer, trainer->progress.epoch + 1));
    if (trainer->progress.position.batch == 0)
        fit->epoch_began = lk__seconds();
    LK_TRY(fit_train_epoch(fit, &report, &complete));
    return complete ? fit_end_epoch(fit, &report) : fit_rest(fit, NULL, false);
}

/* After an interrupt the callbacks may save a checkpoint, from which training can resume, as the next call of fit or
 * lk_trainer_run does from the position. Not after an LK_ERR_INTERRUPTED that a hook or the data gave: steps may have
 * been in flight, or some callbacks may have seen the end of an epoch that others have not. */
static lk_status fit_run_epochs(lk_fit *fit)
{
    lk_trainer *trainer = fit->trainer;
    while (trainer->progress.epoch < trainer->plan.epochs && !fit->result->stopped_by) {
        lk_status status = fit_run_epoch(fit);
        lk__pending_drop(trainer);
        if (fit->is_interrupted) {
            trainer->progress.epoch = trainer->progress.position.epoch;
            trainer->progress.epoch_open = trainer->server.chief != NULL; /* its workers are about to be dismissed */
            lk_error_state kept;
            lk__error_save(&kept);
            lk_error_clear();
            LK_TRY(fit_rest(fit, NULL, true));
            lk__error_restore(&kept);
        }
        LK_TRY(status);
    }
    return LK_OK;
}

/* Sets the digests after an interrupt of fit too: the current step was finished, so all replicas are equal, and all
 * processes come here. */
static lk_status fit_finish_result(lk_fit *fit, lk_status status)
{
    lk_train_result *result = fit->result;
    fit_set_throughput(fit);
    /* Remote workers do not report their FLOPs. */
    result->flops_per_second = fit->trainer->server.chief || fit->flops_per_image == 0
                                   ? NAN
                                   : result->images_per_second * fit->flops_per_image;
    result->total_seconds = lk__seconds() - fit->began;
    if (status == LK_OK)
        status = lk__add_over_processes(fit->trainer, &result->flops_per_second);
    if (status == LK_OK || (status == LK_ERR_INTERRUPTED && fit->is_interrupted)) {
        lk_status digested = lk_trainer_digest(fit->trainer, 0, result->digest);
        if (digested == LK_OK)
            digested = lk_trainer_state_digest(fit->trainer, result->state_digest);
        return status == LK_OK ? digested : status;
    }
    return status;
}

/* Gives the checkpoint's totals back to fit and to the callbacks. */
static lk_status fit_resume(lk_fit *fit)
{
    lk_trainer *trainer = fit->trainer;
    if (!trainer->resumed)
        return LK_OK;
    lk_state own = {.in = lk__checkpoint_member(trainer->resumed, "fit")};
    lk_state others = {.in = lk__checkpoint_member(trainer->resumed, "callbacks")};
    LK_TRY(lk__fit_resume(fit, &own));
    return lk__callbacks_resume(&trainer->callbacks, trainer, &others);
}

/* Before the first training: adds the callbacks that the configuration asks for, and resumes. */
static lk_status fit_configure(lk_fit *fit)
{
    lk_trainer *trainer = fit->trainer;
    if (trainer->has_configured)
        return LK_OK;
    trainer->has_configured = true;
    LK_TRY(lk__callbacks_add_configured(trainer));
    return fit_resume(fit);
}

/* An interrupt is no reason to give up: it ends all processes at the same step. */
static lk_status fit_or_give_up(const lk_trainer *trainer, lk_status status)
{
    bool ends_all = status == LK_ERR_INTERRUPTED && lk__is_interrupted(trainer);
    return ends_all ? status : lk__or_give_up(trainer, status);
}

lk_status lk_trainer_fit(lk_trainer *trainer, lk_train_result *result)
{
    *result = (lk_train_result){.images_per_second = NAN};
    if (trainer->fit)
        LK_FAIL(LK_ERR_STATE, "training: a callback cannot begin the training that calls it");
    if (trainer->progress.epoch_open)
        LK_FAIL(LK_ERR_STATE, "training: an epoch was left half way; lk_trainer_run has to end it first");
    LK_TRY(lk__check_no_pass(trainer, "training"));
    if (trainer->server.role == LK_TRAIN_WORKER)
        LK_FAIL(LK_ERR_STATE, "training: a worker of strategy parameter-server works for its chief: lk_trainer_work");
    double began = lk__seconds() - trainer->progress.position.seconds;
    lk_fit fit = {.trainer = trainer,
                  .result = result,
                  .began = began,
                  .epoch_began = began,
                  .first_epoch = trainer->progress.epoch,
                  .first_samples = trainer->progress.position.samples};
    lk__activity_set(LK_ACTIVITY_WORK, "records");
    trainer->fit = &fit;
    lk_status status = lk__or_give_up(trainer, fit_configure(&fit));
    if (status != LK_OK) {
        trainer->fit = NULL;
        return status;
    }
    fit_count_whole(&fit);
    trainer->progress.taken_back = false;
    trainer->progress.at_rest = true;
    status = lk__callbacks_train_begin(&trainer->callbacks, trainer);
    trainer->progress.at_rest = false;
    if (status == LK_OK)
        status = fit_run_epochs(&fit);
    if (status == LK_OK)
        status = lk__audit(trainer, true);
    result->audits = trainer->progress.audits;
    status = fit_or_give_up(trainer, fit_finish_result(&fit, status));
    status = fit_or_give_up(trainer, lk__callbacks_train_end(&trainer->callbacks, trainer, result, status));
    trainer->fit = NULL;
    lk__ps_end(trainer, status);
    lk__end_interruption(trainer);
    return status;
}

/* --- steps alone -------------------------------------------------------------------------------------------------- */

static lk_status fit_push_single_batch(lk_trainer *trainer, lk_pass *p)
{
    if (!trainer->progress.epoch_open) {
        while (trainer->progress.n_pending > 0)
            LK_TRY(lk__pass_take(trainer, p, true));
        LK_TRY(lk__pass_start(trainer, p, trainer->progress.epoch, true));
        trainer->progress.epoch_open = true;
    }
    if (trainer->progress.n_pending == LK_RUN_AHEAD)
        LK_TRY(lk__pass_take(trainer, p, true));
    LK_TRY(lk__pass_push(trainer, p));
    trainer->progress.epoch_open = !p->ended;
    trainer->progress.epoch += p->ended;
    return LK_OK;
}

/* Twice if training resumed between the last step of an epoch and its evaluation: there is no batch, but an end. */
static lk_status fit_run_single_step(lk_trainer *trainer, lk_pass *p)
{
    int64_t before = trainer->progress.steps;
    LK_TRY(fit_push_single_batch(trainer, p));
    return trainer->progress.steps == before ? fit_push_single_batch(trainer, p) : LK_OK;
}

static lk_status fit_run_single_steps(lk_trainer *trainer, lk_pass *p, int64_t steps)
{
    for (int64_t step = 0; step < steps && !lk__is_interrupted(trainer); step++)
        LK_TRY(fit_run_single_step(trainer, p));
    while (trainer->progress.n_pending > 0)
        LK_TRY(lk__pass_take(trainer, p, true));
    return LK_OK;
}

lk_status lk_trainer_run(lk_trainer *trainer, int64_t steps)
{
    lk_pass p = {.loader = trainer->data.train_loader,
                 .ledger = trainer->data.train_ledger,
                 .push = fit_push_single_step,
                 .began = lk__seconds()};
    int64_t before = trainer->progress.steps;
    if (trainer->fit)
        LK_FAIL(LK_ERR_STATE, "training steps: a callback cannot take steps of the training that calls it");
    LK_TRY(lk__check_no_pass(trainer, "training steps"));
    if (trainer->server.has_optimizer)
        LK_FAIL(LK_ERR_STATE, "training steps: strategy parameter-server has its workers take them: lk_trainer_fit");
    if (trainer->progress.epoch_open)
        p.totals = trainer->progress.totals;
    LK_TRY(lk__or_give_up(trainer, fit_run_single_steps(trainer, &p, steps)));
    if (lk__end_interruption(trainer))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted after %lld of %lld steps",
                (long long)(trainer->progress.steps - before), (long long)steps);
    return LK_OK;
}
