/* Sections of a page about runs. */
#pragma once

#include "io/bytes.h"
#include "lockstep/runs.h"
#include "report/step_records.h"

#include <stdbool.h>

/* --- from records ------------------------------------------------------------------------------------------------- */

/* Losses, accuracies and rates by step and by epoch. steps: [count]. Errors: those of charts. */
lk_status lk__page_put_curves(lk_bytes *out, const lk_page_run *runs, int count, const lk_step_records *const *steps);

/* A table with a row for each run, and one with a row for each setting that differs. */
void lk__page_put_results(lk_bytes *out, const lk_page_run *runs, int count);
void lk__page_put_differences(lk_bytes *out, const lk_page_run *runs, int count);

/* The value of a setting; "": it is not set. */
const char *lk__page_setting(const lk_run *run, const char *name);

/* Returns whether all runs have the same value of a setting. */
bool lk__page_shares(const lk_page_run *runs, int count, const char *name);

/* --- from a file of the run's folder ------------------------------------------------------------------------------ */

/* These append nothing on failure; errors are those of reading the file: LK_ERR_NOT_FOUND, LK_ERR_IO, LK_ERR_FORMAT,
 * LK_ERR_MEMORY. */

/* The confusion matrix, the most frequent mistakes, and precision and recall of each class. matrix: the picture to show
 * instead of a table if there are too many classes for one. */
lk_status lk__page_put_evaluation(lk_bytes *out, const char *path, const char *matrix);

/* Draws what each device and thread did during a step in the middle of the trace. Appends nothing if the trace has no
 * events, as while its training lasts. */
lk_status lk__page_put_trace(lk_bytes *out, const char *path);

/* Tells where the time of a step went, and what several devices gained. */
lk_status lk__page_put_scaling(lk_bytes *out, const char *path);
