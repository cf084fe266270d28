#include "train/fit_state.h"

#include "base/status.h"
#include "train/fit.h"
#include "train/parameter_server/ps_chief.h"
#include "train/pass.h"
#include "train/trainer.h"

#include <math.h>

enum { TOTALS = 6, EPOCH = 5 };

/* Returns the totals that follow from the position: single steps keep no others. */
static lk_train_result fit_state_totals_at(const lk_position *at)
{
    return (lk_train_result){.epochs = at->epoch,
                             .steps = at->steps - at->batch,
                             .samples_seen = at->samples_seen - at->samples,
                             .images_per_second = NAN};
}

void lk__fit_save(const lk_trainer *trainer, lk_state *state)
{
    const lk_fit *fit = trainer->fit;
    const lk_position *at = &trainer->progress.position;
    const lk_train_result whole = fit ? fit->whole : fit_state_totals_at(at), *result = fit ? fit->result : &whole;
    double now = lk__seconds(), began = fit ? fit->began : now,
           epoch_began = fit ? fit->epoch_began : now - at->seconds;
    const double totals[TOTALS] = {(double)whole.epochs, (double)whole.steps, (double)whole.samples_seen,
                                   whole.seconds,        now - began,         result->images_per_second};
    const double epoch[EPOCH] = {(double)at->samples, (double)at->skipped, at->rate, at->seconds,
                                 at->batch > 0 ? now - epoch_began : 0};
    lk_state_set(state, "whole", totals, TOTALS);
    lk_state_set(state, "epoch", epoch, EPOCH);
    lk__state_set_metrics(state, "so_far", &at->so_far);
    lk__state_set_metrics(state, "val", &whole.val);
    if (trainer->server.chief)
        lk__ps_save_report(trainer, state);
    if (result->stopped_by)
        lk_state_set_text(state, "stopped_by", result->stopped_by);
}

void lk__fit_resume_epoch(lk_position *at, const lk_state *state)
{
    double epoch[EPOCH];
    if (lk_state_get(state, "epoch", epoch, EPOCH) != EPOCH || !lk__state_get_metrics(state, "so_far", &at->so_far))
        return;
    at->samples = lk__state_integer(epoch[0]);
    at->skipped = lk__state_integer(epoch[1]);
    at->rate = epoch[2];
    at->seconds = epoch[3];
}

lk_status lk__fit_resume(lk_fit *fit, const lk_state *state)
{
    double whole[TOTALS], epoch[EPOCH];
    lk_metrics so_far;
    lk_train_result *result = fit->result;
    if (lk_state_get(state, "whole", whole, TOTALS) != TOTALS || lk_state_get(state, "epoch", epoch, EPOCH) != EPOCH ||
        !lk__state_get_metrics(state, "so_far", &so_far) || !lk__state_get_metrics(state, "val", &result->val))
        LK_FAIL(LK_ERR_FORMAT, "the checkpoint does not say what training had come to");
    result->seconds = whole[3];
    fit->began = lk__seconds() - whole[4];
    result->images_per_second = whole[5];
    if (!fit->trainer->stops_otherwise)
        result->stopped_by = lk_state_get_text(state, "stopped_by");
    fit->epoch_began = lk__seconds() - epoch[4];
    if (fit->trainer->server.chief)
        lk__ps_resume_report(fit->trainer, state);
    fit->whole = *result;
    if (result->stopped_by) /* no other pass over the epoch that it is in adds that epoch's seconds */
        result->seconds += epoch[3];
    return LK_OK;
}
