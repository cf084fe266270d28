/* A study trains with several values of one setting and several seeds. study.c makes the runs, study_statistics.c the
 * means and intervals, study_report.c the table, the JSON and the chart. */
#pragma once

#include "lockstep/study.h"

#include <jansson.h>
#include <stdatomic.h>

struct lk_study {
    lk_train_config config;
    lk_study_opts opts;
    char *over; /* "SETTING=VALUE,VALUE", split in place; `setting` and `values` point into it */
    const char *setting;
    const char *values[LK_STUDY_MAX_VALUES];
    int n_values;
    char devices[32];                            /* the same for all values, if the caller names no devices */
    const char *devices_of[LK_STUDY_MAX_VALUES]; /* `devices`; NULL: those of the value's own configuration */
    lk_study_run *runs;                          /* [seed * n_values + value] */
    int n_runs;
    json_t *settings; /* an object with the options that are the same in all runs */
    atomic_bool interrupted;
    _Atomic(lk_trainer *) running; /* NULL between runs */
    atomic_int interrupting;       /* calls of lk_study_interrupt that may be using `running` */
};
