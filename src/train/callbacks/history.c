#include "train/callbacks/history.h"

#include "base/mem.h"
#include "base/status.h"
#include "lockstep/callbacks.h"

#include <math.h>

/* Makes space for at least n epochs. */
static lk_status history_reserve(lk_history *history, int64_t n)
{
    int64_t capacity = history->capacity;
    for (int i = -1; i < LK_HISTORY_LINES; i++) {
        double **values = i < 0 ? &history->epoch : &history->line[i];
        capacity = history->capacity;
        LK_TRY(LK_GROW(*values, &capacity, n));
    }
    history->capacity = capacity;
    return LK_OK;
}

static void history_note_measured(lk_history *history, int64_t n)
{
    for (int i = 0; i < LK_HISTORY_LINES; i++)
        history->measured = history->measured || isfinite(history->line[i][n]);
}

lk_status lk__history_add(lk_history *history, const lk_epoch_report *report)
{
    LK_TRY(history_reserve(history, history->count + 1));
    int64_t n = history->count++;
    history->epoch[n] = (double)report->epoch;
    history->line[LK_HISTORY_TRAIN_LOSS][n] = lk_mean_value(report->train.loss);
    history->line[LK_HISTORY_VAL_LOSS][n] = lk_mean_value(report->val.loss);
    history->line[LK_HISTORY_TRAIN_ACCURACY][n] = lk_mean_value(report->train.accuracy);
    history->line[LK_HISTORY_VAL_ACCURACY][n] = lk_mean_value(report->val.accuracy);
    history_note_measured(history, n);
    return LK_OK;
}

static const char *const line_names[] = {[LK_HISTORY_TRAIN_LOSS] = "train_loss",
                                         [LK_HISTORY_VAL_LOSS] = "val_loss",
                                         [LK_HISTORY_TRAIN_ACCURACY] = "train_accuracy",
                                         [LK_HISTORY_VAL_ACCURACY] = "val_accuracy"};

void lk__history_save(const lk_history *history, lk_state *state)
{
    lk_state_set(state, "epoch", history->epoch, history->count);
    for (int i = 0; i < LK_HISTORY_LINES; i++)
        lk_state_set(state, line_names[i], history->line[i], history->count);
}

lk_status lk__history_resume(lk_history *history, const lk_state *state)
{
    int64_t count = lk_state_get(state, "epoch", NULL, 0);
    bool complete = count >= 0;
    if (count > 0)
        LK_TRY(history_reserve(history, count));
    history->count = complete ? count : 0;
    complete = complete && lk_state_get(state, "epoch", history->epoch, count) == count;
    for (int i = 0; complete && i < LK_HISTORY_LINES; i++)
        complete = lk_state_get(state, line_names[i], history->line[i], count) == count;
    if (!complete)
        LK_FAIL(LK_ERR_FORMAT, "the checkpoint does not hold the epochs' losses and accuracies");
    for (int64_t n = 0; n < count; n++)
        history_note_measured(history, n);
    return LK_OK;
}

lk_line_chart lk__history_chart(const lk_history *history, lk_series series[LK_HISTORY_LINES])
{
    static const char *const names[] = {[LK_HISTORY_TRAIN_LOSS] = "train loss",
                                        [LK_HISTORY_VAL_LOSS] = "val loss",
                                        [LK_HISTORY_TRAIN_ACCURACY] = "train accuracy",
                                        [LK_HISTORY_VAL_ACCURACY] = "val accuracy"};
    for (int i = 0; i < LK_HISTORY_LINES; i++) {
        bool right = i == LK_HISTORY_TRAIN_ACCURACY || i == LK_HISTORY_VAL_ACCURACY;
        series[i] = (lk_series){names[i], history->epoch, history->line[i], history->count, right};
    }
    return (lk_line_chart){.x_label = "epoch",
                           .y_label = "loss",
                           .right_label = "accuracy",
                           .series = series,
                           .series_count = LK_HISTORY_LINES,
                           .y_max = LK_HISTORY_LEAST_LOSS,
                           .right_max = 1};
}

void lk__history_free(lk_history *history)
{
    lk__free(history->epoch);
    for (int i = 0; i < LK_HISTORY_LINES; i++)
        lk__free(history->line[i]);
    *history = (lk_history){0};
}
