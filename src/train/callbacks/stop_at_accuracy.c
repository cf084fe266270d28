/* Ends training when the validation accuracy has been above a target for some epochs in a row. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "train/checkpoint/callback_state.h"
#include "train/fit.h"
#include "lockstep/callbacks.h"

typedef struct stopper {
    double target, patience;
    FILE *stream;
    int64_t met;           /* epochs in a row above the target */
    int64_t stopped_epoch; /* 0: has not stopped training */
    bool resumed;
} stopper;

static lk_status stop_at_accuracy_train_begin(void *self, lk_trainer *trainer)
{
    stopper *s = self;
    if (!s->resumed)
        s->met = 0;
    s->resumed = false;
    if (!trainer->fit->result->stopped_by) /* a new training, or --override dropped the reason to stop */
        s->stopped_epoch = 0;
    if (!lk_trainer_dataset(trainer, LK_SPLIT_TEST))
        LK_FAIL(LK_ERR_ARGUMENT, "stop at accuracy %g: there is no evaluation (limit-val 0) to measure it", s->target);
    return LK_OK;
}

static lk_status stop_at_accuracy_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer;
    stopper *s = self;
    s->stopped_epoch = 0;
    /* An accuracy that was not measured is NaN, which is not above the target. */
    if (!(lk_mean_value(report->val.accuracy) > s->target)) {
        s->met = 0;
        return LK_OK;
    }
    s->met++;
    if ((double)s->met >= s->patience) {
        s->stopped_epoch = report->epoch;
        *stop = true;
    }
    return LK_OK;
}

static lk_status stop_at_accuracy_train_end(void *self, lk_trainer *trainer, const lk_train_result *result,
                                            lk_status status)
{
    (void)trainer, (void)result, (void)status;
    stopper *s = self;
    if (s->stopped_epoch > 0 && s->stream) {
        lk__log(LK_LOG_INFO, "the validation accuracy was above %g in %lld epoch%s", s->target, (long long)s->met,
                s->met == 1 ? "" : "s in a row");
        fprintf(s->stream, "Early stopping after epoch %lld\n", (long long)s->stopped_epoch);
        fflush(s->stream);
    }
    return LK_OK;
}

static lk_status stop_at_accuracy_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const stopper *s = self;
    const double epochs[] = {(double)s->met, (double)s->stopped_epoch};
    lk_state_set(state, "epochs", epochs, 2);
    return LK_OK;
}

static lk_status stop_at_accuracy_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    stopper *s = self;
    double epochs[2];
    if (lk_state_get(state, "epochs", epochs, 2) != 2)
        LK_FAIL(LK_ERR_FORMAT, "stop at accuracy: the checkpoint does not say how many epochs were above the target");
    s->met = lk__state_integer(epochs[0]);
    s->stopped_epoch = lk__state_integer(epochs[1]);
    s->resumed = true;
    return LK_OK;
}

/* The comparisons also reject NaN. */
static lk_status stop_at_accuracy_check(double target, double patience)
{
    if (!(target >= 0 && target <= 1))
        LK_FAIL(LK_ERR_ARGUMENT, "stop at accuracy: a target of %g; an accuracy is a number from 0 to 1", target);
    if (!(patience >= 0))
        LK_FAIL(LK_ERR_ARGUMENT, "stop at accuracy: a patience of %g epochs; it must be a number of at least 0",
                patience);
    return LK_OK;
}

lk_callback lk_callback_stop_at_accuracy(double target, double patience, FILE *stream)
{
    if (stop_at_accuracy_check(target, patience) != LK_OK)
        return (lk_callback){0};
    stopper *s = lk__calloc(1, sizeof *s);
    if (!s)
        return (lk_callback){0};
    *s = (stopper){.target = target, .patience = patience, .stream = stream};
    return (lk_callback){.name = "stop at accuracy",
                         .train_begin = stop_at_accuracy_train_begin,
                         .epoch_end = stop_at_accuracy_epoch_end,
                         .save = stop_at_accuracy_save,
                         .resume = stop_at_accuracy_resume,
                         .train_end = stop_at_accuracy_train_end,
                         .release = lk__free,
                         .self = s};
}
