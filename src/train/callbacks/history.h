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
    bool evaluated;                 /* some epoch was */
} lk__history;

/* Errors: LK_ERR_MEMORY. */
lk_status lk__history_add(lk__history *history, const lk_epoch_report *report);

/* The chart and its series, over the history's own memory. Its vertical axis has 0 and 1 on it. */
lk_line_chart lk__history_chart(const lk__history *history, lk_series series[LK_HISTORY_LINES]);

void lk__history_free(lk__history *history);

#endif
