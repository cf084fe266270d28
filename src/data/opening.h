/* Whoever opens a data set is told how it goes on, and may end it. */
#ifndef LK_DATA_OPENING_H
#define LK_DATA_OPENING_H

#include "lockstep/data.h"

typedef struct lk__opening {
    lk_data_progress_fn progress; /* NULL: nobody wants to know */
    void *user;
    const char *name; /* of the file or folder */
} lk__opening;

/* False: opening is to end, with LK_ERR_INTERRUPTED. `opening` may be NULL. */
static inline bool lk__opening_goes_on(const lk__opening *opening, lk_data_work work, int64_t done, int64_t total)
{
    const lk_data_progress progress = {
        .work = work, .name = opening ? opening->name : NULL, .done = done, .total = total};
    return !opening || !opening->progress || opening->progress(opening->user, &progress);
}

#endif
