/* Lowers the learning rate when the validation loss has not improved for some epochs. */
#include "base/mem.h"
#include "base/status.h"
#include "train/checkpoint/callback_state.h"
#include "lockstep/callbacks.h"

#include <math.h>

typedef struct reducer {
    int64_t patience;
    double factor, min_delta;
    double best;  /* INFINITY before the first epoch */
    double share; /* of the rate, so far */
    int64_t waited;
    bool resumed;
} reducer;

static lk_status rate_on_plateau_train_begin(void *self, lk_trainer *trainer)
{
    reducer *r = self;
    if (!r->resumed) {
        r->best = INFINITY;
        r->share = 1;
        r->waited = 0;
    }
    r->resumed = false;
    if (!lk_trainer_dataset(trainer, LK_SPLIT_TEST))
        LK_FAIL(LK_ERR_ARGUMENT, "rate on plateau: there is no evaluation (limit-val 0) that gives a validation loss");
    return LK_OK;
}

static double rate_on_plateau_rate(void *self, lk_trainer *trainer, double epoch, double rate)
{
    (void)trainer, (void)epoch;
    const reducer *r = self;
    return rate * r->share;
}

static lk_status rate_on_plateau_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    reducer *r = self;
    double loss = lk_mean_value(report->val.loss);
    if (loss < r->best - r->min_delta) {
        r->best = loss;
        r->waited = 0;
    } else if (++r->waited >= r->patience) {
        r->share *= r->factor;
        r->waited = 0;
    }
    return LK_OK;
}

static lk_status rate_on_plateau_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const reducer *r = self;
    const double values[] = {r->best, r->share, (double)r->waited};
    lk_state_set(state, "best", values, 3);
    return LK_OK;
}

static lk_status rate_on_plateau_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    reducer *r = self;
    double values[3];
    if (lk_state_get(state, "best", values, 3) != 3 || !(values[1] >= 0 && values[1] <= 1))
        LK_FAIL(LK_ERR_FORMAT, "rate on plateau: the checkpoint does not say how far the rate is down");
    r->best = values[0];
    r->share = values[1];
    r->waited = lk__state_integer(values[2]);
    r->resumed = true;
    return LK_OK;
}

/* The comparisons also reject NaN. */
static lk_status rate_on_plateau_check(int64_t patience, double factor, double min_delta)
{
    if (patience < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "rate on plateau: a patience of %lld epochs; it must be at least 1",
                (long long)patience);
    if (!(factor > 0 && factor < 1))
        LK_FAIL(LK_ERR_ARGUMENT, "rate on plateau: a factor of %g; it must be above 0 and below 1", factor);
    if (!(min_delta >= 0))
        LK_FAIL(LK_ERR_ARGUMENT, "rate on plateau: min_delta is %g; it must be at least 0", min_delta);
    return LK_OK;
}

lk_callback lk_callback_rate_on_plateau(int64_t patience, double factor, double min_delta)
{
    if (rate_on_plateau_check(patience, factor, min_delta) != LK_OK)
        return (lk_callback){0};
    reducer *r = lk__calloc(1, sizeof *r);
    if (!r)
        return (lk_callback){0};
    *r = (reducer){.patience = patience, .factor = factor, .min_delta = min_delta, .best = INFINITY, .share = 1};
    return (lk_callback){.name = "rate on plateau",
                         .train_begin = rate_on_plateau_train_begin,
                         .rate = rate_on_plateau_rate,
                         .epoch_end = rate_on_plateau_epoch_end,
                         .save = rate_on_plateau_save,
                         .resume = rate_on_plateau_resume,
                         .release = lk__free,
                         .self = r};
}
