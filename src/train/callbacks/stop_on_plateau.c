/* Ends training when the validation loss has not improved for some epochs. */
#include "base/mem.h"
#include "base/status.h"
#include "train/checkpoint/callback_state.h"
#include "train/fit.h"
#include "lockstep/callbacks.h"

#include <math.h>

typedef struct plateau {
    int64_t patience;
    double min_delta;
    FILE *stream;
    double best; /* INFINITY before the first epoch */
    int64_t best_epoch, waited, stopped_epoch;
    bool resumed;
} plateau;

static lk_status plateau_train_begin(void *self, lk_trainer *trainer)
{
    plateau *p = self;
    if (!p->resumed) {
        p->best = INFINITY;
        p->best_epoch = p->waited = 0;
    }
    p->resumed = false;
    if (!trainer->fit->result->stopped_by) /* a new training, or --override dropped the reason to stop */
        p->stopped_epoch = 0;
    if (!lk_trainer_dataset(trainer, LK_SPLIT_TEST))
        LK_FAIL(LK_ERR_ARGUMENT, "stop on plateau: there is no evaluation (limit-val 0) that gives a validation loss");
    return LK_OK;
}

static lk_status plateau_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer;
    plateau *p = self;
    double loss = lk_mean_value(report->val.loss);
    p->stopped_epoch = 0;
    if (loss < p->best - p->min_delta) {
        p->best = loss;
        p->best_epoch = report->epoch;
        p->waited = 0;
    } else if (++p->waited >= p->patience) {
        p->stopped_epoch = report->epoch;
        *stop = true;
    }
    return LK_OK;
}

static lk_status plateau_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    plateau *p = self;
    if (p->stopped_epoch == 0 || !p->stream)
        return LK_OK;
    fprintf(p->stream, "Early stopping after epoch %lld: ", (long long)p->stopped_epoch);
    if (p->best_epoch > 0)
        fprintf(p->stream, "the best validation loss, %.4f, was in epoch %lld\n", p->best, (long long)p->best_epoch);
    else
        fprintf(p->stream, "no validation loss was a number\n");
    fflush(p->stream);
    return LK_OK;
}

static lk_status plateau_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const plateau *p = self;
    const double values[] = {p->best, (double)p->best_epoch, (double)p->waited, (double)p->stopped_epoch};
    lk_state_set(state, "best", values, 4);
    return LK_OK;
}

static lk_status plateau_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    plateau *p = self;
    double values[4];
    if (lk_state_get(state, "best", values, 4) != 4)
        LK_FAIL(LK_ERR_FORMAT, "stop on plateau: the checkpoint does not say which validation loss was the best");
    p->best = values[0];
    p->best_epoch = lk__state_integer(values[1]);
    p->waited = lk__state_integer(values[2]);
    p->stopped_epoch = lk__state_integer(values[3]);
    p->resumed = true;
    return LK_OK;
}

static lk_status plateau_check(int64_t patience, double min_delta)
{
    if (patience < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "stop on plateau: a patience of %lld epochs; it must be at least 1",
                (long long)patience);
    if (!(min_delta >= 0))
        LK_FAIL(LK_ERR_ARGUMENT, "stop on plateau: min_delta is %g; it must be at least 0", min_delta);
    return LK_OK;
}

lk_callback lk_callback_stop_on_plateau(int64_t patience, double min_delta, FILE *stream)
{
    if (plateau_check(patience, min_delta) != LK_OK)
        return (lk_callback){0};
    plateau *p = lk__calloc(1, sizeof *p);
    if (!p)
        return (lk_callback){0};
    *p = (plateau){.patience = patience, .min_delta = min_delta, .stream = stream, .best = INFINITY};
    return (lk_callback){.name = "stop on plateau",
                         .train_begin = plateau_train_begin,
                         .epoch_end = plateau_epoch_end,
                         .save = plateau_save,
                         .resume = plateau_resume,
                         .train_end = plateau_train_end,
                         .release = lk__free,
                         .self = p};
}
