/* Takes back the weights of the epoch with the smallest validation loss when training ends. */
#include "base/mem.h"
#include "base/status.h"
#include "train/checkpoint/callback_state.h"
#include "train/fit.h"
#include "train/trainer.h"
#include "lockstep/callbacks.h"

#include <math.h>

typedef struct restorer {
    FILE *stream;
    double best;    /* INFINITY before the first epoch */
    int64_t epoch;  /* the kept weights are this epoch's; 0: none are kept */
    lk_metrics val; /* of that epoch; counts are 0 after a checkpoint of a version that did not save them */
    bool resumed, taken_back;
} restorer;

static lk_status restore_best_train_begin(void *self, lk_trainer *trainer)
{
    restorer *r = self;
    if (!r->resumed) {
        r->best = INFINITY;
        r->epoch = 0;
        r->val = (lk_metrics){0};
    }
    r->resumed = r->taken_back = false;
    if (!lk_trainer_dataset(trainer, LK_SPLIT_TEST))
        LK_FAIL(LK_ERR_ARGUMENT, "restore best: there is no evaluation (limit-val 0) that gives a validation loss");
    return LK_OK;
}

static lk_status restore_best_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    restorer *r = self;
    double loss = lk_mean_value(report->val.loss);
    if (!(loss < r->best))
        return LK_OK;
    r->best = loss;
    r->epoch = report->epoch;
    r->val = report->val;
    return lk_replicas_keep(trainer->replicas);
}

/* It comes before the callback that writes the last checkpoint. The result's metrics become those of the weights, in
 * the checkpoint too, from whose totals a training that has ended takes them. */
static lk_status restore_best_rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    restorer *r = self;
    if (!report->ends || r->epoch == 0 || r->epoch == report->epoch)
        return LK_OK;
    LK_TRY(lk_replicas_take_back(trainer->replicas));
    r->taken_back = trainer->progress.taken_back = true;
    if (r->val.loss.count)
        trainer->fit->result->val = trainer->fit->whole.val = r->val;
    return LK_OK;
}

static lk_status restore_best_train_end(void *self, lk_trainer *trainer, const lk_train_result *result,
                                        lk_status status)
{
    (void)trainer, (void)result, (void)status;
    const restorer *r = self;
    if (!r->taken_back || !r->stream)
        return LK_OK;
    fprintf(r->stream, "Took back the weights of epoch %lld, with the best validation loss, %.4f\n",
            (long long)r->epoch, r->best);
    fflush(r->stream);
    return LK_OK;
}

static lk_status restore_best_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const restorer *r = self;
    const double values[] = {r->best, (double)r->epoch};
    lk_state_set(state, "best", values, 2);
    lk__state_set_metrics(state, "val", &r->val);
    return LK_OK;
}

static lk_status restore_best_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    restorer *r = self;
    double values[2];
    if (lk_state_get(state, "best", values, 2) != 2)
        LK_FAIL(LK_ERR_FORMAT, "restore best: the checkpoint does not say which validation loss was the best");
    r->best = values[0];
    r->epoch = lk__state_integer(values[1]);
    lk__state_get_metrics(state, "val", &r->val);
    r->resumed = true;
    return LK_OK;
}

lk_callback lk_callback_restore_best(FILE *stream)
{
    restorer *r = lk__calloc(1, sizeof *r);
    if (!r)
        return (lk_callback){0};
    *r = (restorer){.stream = stream, .best = INFINITY};
    return (lk_callback){.name = "restore best",
                         .train_begin = restore_best_train_begin,
                         .epoch_end = restore_best_epoch_end,
                         .rest = restore_best_rest,
                         .save = restore_best_save,
                         .resume = restore_best_resume,
                         .train_end = restore_best_train_end,
                         .release = lk__free,
                         .self = r};
}
