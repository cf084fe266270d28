/* The losses and accuracies of all epochs so far, for charts. */
#pragma once

#include "lockstep/plot.h"
#include "lockstep/train.h"

enum {
    LK_HISTORY_TRAIN_LOSS,
    LK_HISTORY_VAL_LOSS,
    LK_HISTORY_TRAIN_ACCURACY,
    LK_HISTORY_VAL_ACCURACY,
    LK_HISTORY_LINES
};

/* A loss axis goes from 0 to this or more, so that a loss that hardly changes looks flat. */
#define LK_HISTORY_LEAST_LOSS 0.1

/* A zeroed history is empty. */
typedef struct lk_history {
    int64_t count, capacity;
    double *epoch;
    double *line[LK_HISTORY_LINES]; /* NaN: not measured */
    bool measured;                  /* some line has a finite value */
} lk_history;

/* Errors: LK_ERR_MEMORY. */
lk_status lk__history_add(lk_history *history, const lk_epoch_report *report);

/* Saves to a checkpoint and restores from one. Errors: LK_ERR_FORMAT, LK_ERR_MEMORY. */
void lk__history_save(const lk_history *history, lk_state *state);
lk_status lk__history_resume(lk_history *history, const lk_state *state);

/* Returns a chart whose series point into the history. Losses use the left axis, from 0; accuracies use the right one,
 * from 0 to 1, so that high losses do not flatten them. */
lk_line_chart lk__history_chart(const lk_history *history, lk_series series[LK_HISTORY_LINES]);

void lk__history_free(lk_history *history);
