/* The epochs so far, as lines of a chart. */
#ifndef LK_TRAIN_CALLBACKS_HISTORY_H
#define LK_TRAIN_CALLBACKS_HISTORY_H

#include "lockstep/plot.h"
#include "lockstep/train.h"

enum {
    LK_HISTORY_TRAIN_LOSS,
    LK_HISTORY_VAL_LOSS,
    LK_HISTORY_TRAIN_ACCURACY,
    LK_HISTORY_VAL_ACCURACY,
    LK_HISTORY_LINES
};

/* Zeroed: empty. */
typedef struct lk__history {
    int64_t count, capacity;
    double *epoch;
    double *line[LK_HISTORY_LINES]; /* NaN: not measured */
    bool measured;                  /* there is a number among the lines' */
} lk__history;

/* Errors: LK_ERR_MEMORY. */
lk_status lk__history_add(lk__history *history, const lk_epoch_report *report);

/* For checkpoints. Errors: LK_ERR_FORMAT, LK_ERR_MEMORY. */
void lk__history_save(const lk__history *history, lk_state *state);
lk_status lk__history_resume(lk__history *history, const lk_state *state);

/* The chart and its series, over the history's own memory: losses on the axis at the left, from 0, accuracies on one
 * from 0 to 1 at the right, where losses that begin high do not flatten them. */
lk_line_chart lk__history_chart(const lk__history *history, lk_series series[LK_HISTORY_LINES]);

void lk__history_free(lk__history *history);

#endif
