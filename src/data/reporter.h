/* Reports progress to the user's callback while a data set is opened. The callback may stop the work. */
#pragma once

#include "lockstep/data.h"

typedef struct lk_data_reporter {
    lk_data_progress_fn progress; /* NULL: nothing is reported */
    void *user;
    const char *name; /* the file or folder, for lk_data_progress.name */
} lk_data_reporter;

/* Calls the callback, if there is one. False: it asks to stop, and the caller must fail with LK_ERR_INTERRUPTED.
 * `reporter` may be NULL. */
static inline bool lk__report_progress(const lk_data_reporter *reporter, lk_data_work work, int64_t done, int64_t total)
{
    const lk_data_progress progress = {
        .work = work, .name = reporter ? reporter->name : NULL, .done = done, .total = total};
    return !reporter || !reporter->progress || reporter->progress(reporter->user, &progress);
}
