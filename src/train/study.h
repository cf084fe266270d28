/* A study's parts: study.c makes the runs, study_statistics.c means and intervals, study_report.c what is shown. */
#ifndef LK_TRAIN_STUDY_H
#define LK_TRAIN_STUDY_H

#include "lockstep/study.h"

#include <jansson.h>
#include <stdatomic.h>

struct lk_study {
    lk_train_config config;
    lk_study_opts opts;
    char *over; /* cut into the setting and the values, which point into it */
    const char *setting;
    const char *values[LK_STUDY_MAX_VALUES];
    int n_values;
    char devices[32];                            /* as many for all values, where nobody said how many */
    const char *devices_of[LK_STUDY_MAX_VALUES]; /* that, or NULL: what the value's own configuration gives */
    lk_study_run *runs;                          /* [seed * n_values + value] */
    int n_runs;
    json_t *settings; /* an object: option, value */
    atomic_bool interrupted;
    _Atomic(lk_trainer *) running; /* NULL between runs */
    atomic_int interrupting;       /* calls of lk_study_interrupt that may hold `running` */
};

/* --- study_statistics.c ------------------------------------------------------------------------------------------- */

/* t such that a variable of Student's distribution with df >= 1 degrees of freedom lies within [-t, t] with the given
 * probability, 0 <= p < 1. */
double lk__student_t(int df, double probability);

typedef struct lk__interval {
    double mean, low, high;
} lk__interval;

/* The mean of values[n] and its 95% interval; n == 1: low == high == mean; n == 0: NAN. */
lk__interval lk__mean_interval(const double *values, int n);

#endif
