/* Records of runs, read back: what `lockstep train --log-dir` has left in epochs.jsonl, epochs-2.jsonl and so on. */
#ifndef LOCKSTEP_RUNS_H
#define LOCKSTEP_RUNS_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_run_setting {
    const char *name, *value; /* "batch-size", "256"; "": not set */
} lk_run_setting;

/* NaN: not measured. */
typedef struct lk_run_epoch {
    int64_t epoch; /* from 1 */
    double train_loss, train_accuracy, val_loss, val_accuracy, rate;
    double total_seconds, images_per_second; /* total_seconds: since the run began */
} lk_run_epoch;

typedef struct lk_run {
    const char *path;               /* of the file */
    const lk_run_setting *settings; /* of what identifies a run, in their order; as it went on last */
    int n_settings;
    const lk_run_epoch *epochs; /* in order */
    int64_t n_epochs;
    bool finished;      /* it has ended by itself, and says so */
    double seconds;     /* what it has taken so far; NaN: no epoch is over */
    const char *digest; /* of a finished one; NULL: none */
} lk_run;

/* Reads the records of one run: a file, or of a folder that --log-dir named the last one's. Where a program died while
 * it wrote, the last line is left out. lk_run_release frees it.
 * Errors: LK_ERR_NOT_FOUND (no such file, or no records in the folder), LK_ERR_FORMAT (file, line, and what is wrong
 * there), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_run_read(const char *path, lk_run **run);
LK_API void lk_run_release(lk_run *run); /* NULL is fine */

/* NULL: it has no setting of that name. */
LK_API const char *lk_run_get_setting(const lk_run *run, const char *name);

/* The epoch of the greatest validation accuracy, of training accuracy where no epoch was evaluated; of equals the
 * first. *accuracy: it; NULL and NaN: there is none. */
LK_API const lk_run_epoch *lk_run_best(const lk_run *run, double *accuracy);

/* What a list says of it, as an object of JSON without spaces: path, model, data, devices, epochs, best_accuracy,
 * best_epoch, best_of ("validation", or "training" where no epoch was evaluated), seconds, finished, digest; null where
 * there is none. To be freed with lk_free; NULL on failure: LK_ERR_MEMORY. */
LK_API char *lk_run_json(const lk_run *run);

/* Calls visit for every file of records in a folder and the folders in it, eight deep, in the order of their names;
 * hidden folders are left out. One in it that cannot be read is given to `visit` itself: lk_run_read says why. The path
 * begins with `folder` and is valid during the call. Ends with the first error of `visit`. Errors: LK_ERR_NOT_FOUND (no
 * such folder), LK_ERR_IO (which cannot be read), LK_ERR_MEMORY. */
LK_API lk_status lk_runs_visit(const char *folder, lk_status (*visit)(void *user, const char *path), void *user);

#ifdef __cplusplus
}
#endif

#endif
