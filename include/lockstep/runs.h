/* Reads records of runs: the files epochs.jsonl, epochs-2.jsonl and so on that lk_callback_log_dir and `lockstep train
 * --log-dir` write.
 *
 *     lk_run *run;
 *     lk_run_read("logs/a", &run);
 *     printf("%s: %lld epochs\n", run->path, (long long)run->n_epochs);
 *     lk_run_release(run); */
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

/* An epoch. NaN: not measured. */
typedef struct lk_run_epoch {
    int64_t epoch; /* from 1 */
    double train_loss, train_accuracy, val_loss, val_accuracy, rate;
    double total_seconds; /* since the run began */
    double images_per_second;
} lk_run_epoch;

/* An elastic training went on with another number of processes. */
typedef struct lk_run_change {
    int64_t step;          /* the last one before it */
    int64_t before, after; /* processes */
    const char *reason;
} lk_run_change;

typedef struct lk_run {
    const char *path;               /* of the file */
    const lk_run_setting *settings; /* [n_settings]: what identifies a run; since the last resume, if it was resumed */
    int n_settings;
    const lk_run_epoch *epochs; /* [n_epochs], in order */
    int64_t n_changes;
    const lk_run_change *changes; /* [n_changes], in order */
    int64_t n_epochs;
    bool finished;      /* the records have the last line of a complete training */
    bool repeatable;    /* the settings decide the bits, on any number of devices: not asynchronously, with --compress
                         * or --reduce nccl, nor after a resume with settings that change bits, nor with a
                         * callback that has `rate` */
    bool trains;        /* a process is training: it is not finished and holds the file's lock */
    double seconds;     /* that it has taken so far; NaN: no epoch is complete */
    const char *digest; /* see lk_trainer_digest; NULL: it is not finished */
    const char *state_digest; /* see lk_trainer_state_digest; NULL: it is not finished */
    double images_per_second; /* of the last part of the training, without start-up; NaN: it is not finished */
} lk_run;

/* Reads the records of one run from a file, or of the last run from a folder. An incomplete last line, which a dying
 * program has left, is ignored. lk_run_release frees *run.
 * Errors: LK_ERR_NOT_FOUND (no such file, or no records in the folder), LK_ERR_FORMAT (file, line, and what is wrong
 * there), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_run_read(const char *path, lk_run **run);
LK_API void lk_run_release(lk_run *run); /* NULL is fine */

/* The value of a setting, valid as long as the run; NULL: there is none of that name. */
LK_API const char *lk_run_get_setting(const lk_run *run, const char *name);

/* The number of the last complete epoch, which is more than n_epochs if the run was resumed and the records before are
 * in another file; 0: no epoch is complete. */
LK_API int64_t lk_run_last_epoch(const lk_run *run);

/* The epoch with the greatest validation accuracy or, if no epoch was evaluated, training accuracy; of equals the
 * first. Sets *accuracy to it. NULL, and NaN: there is no epoch. */
LK_API const lk_run_epoch *lk_run_best(const lk_run *run, double *accuracy);

/* Training images a second: of a finished run as its last line says, without start-up; else of its last epoch. NaN: no
 * epoch is complete. */
LK_API double lk_run_rate(const lk_run *run);

/* Gives a summary as a JSON object without spaces: path, model, data, devices, epochs, best_accuracy, best_epoch,
 * best_of ("validation", or "training" if no epoch was evaluated), seconds, finished, trains, digest; null for what
 * there is not. Free it with lk_free. NULL on failure: LK_ERR_MEMORY. */
LK_API char *lk_run_json(const lk_run *run);

/* Calls visit(user, path) for every file of records in a folder and below it, eight levels deep, in the order of their
 * names, without hidden folders. A folder below that cannot be read is visited itself, and lk_run_read of it says why.
 * The path begins with `folder` and is valid during the call. The first error of `visit` ends the walk and is given.
 * Errors also: LK_ERR_NOT_FOUND (no such folder), LK_ERR_IO (it cannot be read), LK_ERR_MEMORY. */
LK_API lk_status lk_runs_visit(const char *folder, lk_status (*visit)(void *user, const char *path), void *user);

/* --- a page about runs -------------------------------------------------------------------------------------------- */

enum { LK_PAGE_RUNS = 8 };

typedef struct lk_page_run {
    const lk_run *run;
    const char *name;    /* for titles and legends */
    const char *command; /* that repeats the run; NULL: none is shown */
} lk_page_run;

/* Writes a page of HTML, which needs no other file and no network, about one run or 1 … LK_PAGE_RUNS runs compared. For
 * one run it also shows what its folder holds under the run's number: steps.jsonl, scaling.json, trace.json, and
 * evaluation.json and mistakes.png of `lockstep evaluate --out`. A file among these that cannot be used is left out,
 * and a warning (lk_log_set) and a line of the page say why. Texts of runs are shown as text, whatever they hold. The
 * file is replaced as a whole. Errors: LK_ERR_ARGUMENT (number of runs), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_page_write(const lk_page_run *runs, int count, const char *path);

#ifdef __cplusplus
}
#endif

#endif
