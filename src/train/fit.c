/* Epochs. The caller's thread runs at most LK_RUN_AHEAD steps ahead of the devices: it then waits for the oldest step's
 * metrics, which it wants anyway. */
#include "train/trainer.h"

#include "base/log.h"
#include "base/status.h"

#include <math.h>
#include <time.h>

double lk__seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef lk_status (*step_fn)(lk_trainer *trainer, lk_batch *batch);

/* What one pass over a loader has found so far. */
typedef struct pass {
    lk_mean loss, accuracy;
    int64_t pushed, taken; /* steps */
    double began;
} pass;

typedef void (*taken_fn)(void *user, const pass *so_far);

static lk_status take(lk_trainer *trainer, pass *p, taken_fn taken, void *user)
{
    bool was_finite = isfinite(p->loss.sum);
    LK_TRY(lk__take_pending(trainer, &p->loss, &p->accuracy));
    p->taken++;
    if (was_finite && !isfinite(p->loss.sum))
        lk__log(LK_LOG_WARNING, "the loss is not finite any more, in step %lld; a smaller --base-lr may help",
                (long long)p->taken);
    if (taken)
        taken(user, p);
    return LK_OK;
}

static lk_status push_step(lk_trainer *trainer, lk_loader *loader, lk_ledger *ledger, step_fn step, bool *ended)
{
    lk_batch *batch;
    LK_TRY(lk_loader_next(loader, &batch));
    *ended = !batch;
    if (!batch)
        return LK_OK;
    lk_status status = lk_ledger_add(ledger, batch->indices, batch->count);
    if (status == LK_OK)
        status = step(trainer, batch);
    lk_batch_release(batch);
    return status;
}

static lk_status run_pass(lk_trainer *trainer, lk_loader *loader, lk_ledger *ledger, step_fn step, pass *p,
                          taken_fn taken, void *user)
{
    bool ended = false;
    p->began = lk__seconds();
    while (!ended) {
        if (trainer->n_pending == LK_RUN_AHEAD)
            LK_TRY(take(trainer, p, taken, user));
        LK_TRY(push_step(trainer, loader, ledger, step, &ended));
        p->pushed += !ended;
    }
    while (trainer->n_pending > 0)
        LK_TRY(take(trainer, p, taken, user));
    return LK_OK;
}

static lk_status check_ledger(const lk_ledger *ledger, const char *what, lk_ledger_report *report)
{
    lk_ledger_check(ledger, report);
    if (report->first_bad >= 0)
        LK_FAIL(LK_ERR_STATE, "ledger: %s sample %lld was not used exactly once in this epoch", what,
                (long long)report->first_bad);
    return LK_OK;
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

lk_status lk_trainer_evaluate(lk_trainer *trainer, lk_mean *loss, lk_mean *accuracy)
{
    pass p = {0};
    *loss = *accuracy = (lk_mean){0};
    if (!trainer->val_set)
        return LK_OK;
    lk_ledger_reset(trainer->val_ledger);
    LK_TRY(lk_loader_start(trainer->val_loader, 0));
    LK_TRY(run_pass(trainer, trainer->val_loader, trainer->val_ledger, lk__evaluate_step, &p, NULL, NULL));
    *loss = p.loss;
    *accuracy = p.accuracy;
    return LK_OK;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

/* Throughput leaves out the first epoch, or a single epoch's first tenth. */
typedef struct fit_state {
    lk_trainer *trainer;
    const lk_train_callbacks *callbacks;
    lk_train_result *result;
    int64_t warm_up_steps; /* of a single epoch */
    double warm_up_end;
    int64_t warm_up_images;
    double timed_seconds;
    double flops_per_image; /* of training */
    int64_t timed_images;
} fit_state;

static void step_taken(void *user, const pass *so_far)
{
    fit_state *fit = user;
    const lk_plan *plan = &fit->trainer->plan;
    if (so_far->taken == fit->warm_up_steps) {
        fit->warm_up_end = lk__seconds();
        fit->warm_up_images = so_far->loss.count;
    }
    if (!fit->callbacks || !fit->callbacks->step)
        return;
    lk_step_report report = {.epoch = fit->trainer->epoch + 1,
                             .step = so_far->taken,
                             .steps = plan->steps_per_epoch,
                             .loss = so_far->loss,
                             .accuracy = so_far->accuracy,
                             .seconds = lk__seconds() - so_far->began};
    fit->callbacks->step(fit->callbacks->user, &report);
}

static void count_throughput(fit_state *fit, const lk_epoch_report *report, double began)
{
    const lk_plan *plan = &fit->trainer->plan;
    if (plan->epochs == 1) {
        double start = fit->warm_up_steps > 0 ? fit->warm_up_end : began;
        fit->timed_seconds = began + report->seconds - start;
        fit->timed_images = report->train_loss.count - fit->warm_up_images;
    } else if (report->epoch > 1) {
        fit->timed_seconds += report->seconds;
        fit->timed_images += report->train_loss.count;
    }
}

static double flops_so_far(const lk_trainer *trainer)
{
    double flops = 0;
    for (int d = 0; d < trainer->n_devices; d++)
        flops += lk_device_flops(trainer->devices[d]);
    return flops;
}

static lk_status train_epoch(fit_state *fit, lk_epoch_report *report)
{
    lk_trainer *trainer = fit->trainer;
    pass p = {0};
    double flops = flops_so_far(trainer);
    lk_ledger_reset(trainer->train_ledger);
    LK_TRY(lk_loader_start(trainer->train_loader, trainer->epoch));
    LK_TRY(run_pass(trainer, trainer->train_loader, trainer->train_ledger, lk__train_step, &p, step_taken, fit));
    report->epoch = trainer->epoch + 1;
    report->seconds = lk__seconds() - p.began;
    report->train_loss = p.loss;
    report->train_accuracy = p.accuracy;
    report->images_per_second = (double)p.loss.count / report->seconds;
    fit->flops_per_image = (flops_so_far(trainer) - flops) / (double)p.loss.count;
    count_throughput(fit, report, p.began);
    fit->result->steps += p.taken;
    fit->result->samples_seen += p.loss.count;
    fit->result->seconds += report->seconds;
    trainer->epoch++;
    return check_ledger(trainer->train_ledger, "training", &report->train_ledger);
}

static lk_status run_epoch(fit_state *fit)
{
    lk_epoch_report report = {.train_ledger = {.first_bad = -1}, .val_ledger = {.first_bad = -1}};
    lk_trainer *trainer = fit->trainer;
    LK_TRY(train_epoch(fit, &report));
    LK_TRY(lk_trainer_evaluate(trainer, &report.val_loss, &report.val_accuracy));
    if (trainer->val_set)
        LK_TRY(check_ledger(trainer->val_ledger, "validation", &report.val_ledger));
    fit->result->val_accuracy = report.val_accuracy;
    if (fit->callbacks && fit->callbacks->epoch && !fit->callbacks->epoch(fit->callbacks->user, &report))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: stopped after epoch %lld", (long long)report.epoch);
    return LK_OK;
}

lk_status lk_trainer_fit(lk_trainer *trainer, const lk_train_callbacks *callbacks, lk_train_result *result)
{
    const lk_plan *plan = &trainer->plan;
    *result = (lk_train_result){0};
    if (trainer->epoch_open)
        LK_FAIL(LK_ERR_STATE, "training: lk_trainer_run left an epoch half way; it has to end first");
    fit_state fit = {.trainer = trainer, .callbacks = callbacks, .result = result};
    fit.warm_up_steps = plan->epochs == 1 ? plan->steps_per_epoch / 10 : 0;
    while (trainer->epoch < plan->epochs) {
        lk_status status = run_epoch(&fit);
        lk__drop_pending(trainer);
        LK_TRY(status);
    }
    result->images_per_second = fit.timed_seconds > 0 ? (double)fit.timed_images / fit.timed_seconds : NAN;
    result->flops_per_second = result->images_per_second * fit.flops_per_image;
    return lk_trainer_digest(trainer, 0, result->digest);
}

lk_status lk_trainer_run(lk_trainer *trainer, int64_t steps)
{
    lk_mean loss = {0}, accuracy = {0};
    for (int64_t step = 0; step < steps;) {
        if (!trainer->epoch_open) {
            lk_ledger_reset(trainer->train_ledger);
            LK_TRY(lk_loader_start(trainer->train_loader, trainer->epoch));
            trainer->epoch_open = true;
        }
        bool ended;
        if (trainer->n_pending == LK_RUN_AHEAD)
            LK_TRY(lk__take_pending(trainer, &loss, &accuracy));
        LK_TRY(push_step(trainer, trainer->train_loader, trainer->train_ledger, lk__train_step, &ended));
        trainer->epoch_open = !ended;
        trainer->epoch += ended;
        step += !ended;
    }
    while (trainer->n_pending > 0)
        LK_TRY(lk__take_pending(trainer, &loss, &accuracy));
    return LK_OK;
}
