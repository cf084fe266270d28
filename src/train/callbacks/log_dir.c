/* Writes all records of a run into one folder. The callback holds one callback for each record and calls its hooks. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "lockstep/build.h"
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/record.h"
#include "lockstep/runs.h"
#include "lockstep/scaling.h"
#include "report/record_names.h"
#include "train/checkpoint/callback_state.h"
#include "train/callback_list.h"
#include "train/fit.h"
#include "train/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RUNS = 1000000 };

typedef struct log_dir {
    char *dir;
    lk_callbacks records;
    int run;          /* number of this run in the folder, from 1; 0: none yet */
    bool is_complete; /* the folder has all records of a training that is over: nothing is written */
} log_dir;

/* --- the folder --------------------------------------------------------------------------------------------------- */

static lk_status log_dir_make(const char *path)
{
    LK_TRY(lk_make_directory(path));
    if (access(path, W_OK | X_OK) != 0)
        LK_FAIL(LK_ERR_IO, "log folder %s: cannot be written: %s", path, strerror(errno));
    return LK_OK;
}

/* *has: true if the folder has files of this run, not counting its CSV file. */
static lk_status log_dir_has_files(const log_dir *log, int run, bool *has)
{
    static const char *const files[][2] = {{"epochs", ".jsonl"},   {"steps", ".csv"},    {"steps", ".jsonl"},
                                           {"algorithms", ".txt"}, {"scaling", ".json"}, {"curves", ".svg"},
                                           {"curves", ".png"}};
    char path[PATH_MAX];
    *has = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !*has; i++) {
        LK_TRY(lk__record_path(log->dir, files[i][0], files[i][1], run, path));
        *has = access(path, F_OK) == 0;
    }
    return LK_OK;
}

/* Takes the first number without files by creating its CSV file, in which only one of several runs can succeed. */
static lk_status log_dir_take_run_number(const log_dir *log, int *number)
{
    char path[PATH_MAX];
    for (int run = 1; run <= MAX_RUNS; run++) {
        bool has;
        LK_TRY(log_dir_has_files(log, run, &has));
        if (has)
            continue;
        LK_TRY(lk__record_path(log->dir, "epochs", ".csv", run, path));
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0) {
            *number = run;
            close(file);
            return LK_OK;
        }
        if (errno != EEXIST)
            LK_FAIL(LK_ERR_IO, "log folder %s: cannot be written: %s", log->dir, strerror(errno));
    }
    LK_FAIL(LK_ERR_IO, "log folder %s: holds the records of %d runs: remove them or choose another", log->dir,
            MAX_RUNS);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

/* Adds a callback for each record of run log->run. */
static lk_status log_dir_add_records(log_dir *log)
{
    const lk_json_lines_opts opts = {.settings = true, .ledger = true};
    char path[PATH_MAX], png[PATH_MAX];
    LK_TRY(lk__callbacks_add(&log->records, lk_callback_tensorboard(log->dir)));
    LK_TRY(lk__record_path(log->dir, "epochs", ".csv", log->run, path));
    LK_TRY(lk__callbacks_add(&log->records, lk_callback_csv(path)));
    LK_TRY(lk__record_path(log->dir, "epochs", ".jsonl", log->run, path));
    LK_TRY(lk__callbacks_add(&log->records, lk_callback_json_lines(path, &opts)));
    LK_TRY(lk__record_path(log->dir, "steps", ".csv", log->run, path));
    LK_TRY(lk__callbacks_add(&log->records, lk_callback_steps(path, LK_ROWS_CSV)));
    LK_TRY(lk__record_path(log->dir, "steps", ".jsonl", log->run, path));
    LK_TRY(lk__callbacks_add(&log->records, lk_callback_steps(path, LK_ROWS_JSON)));
    bool has_png = lk_build_has("libcairo");
    if (!has_png)
        lk__log(LK_LOG_INFO, "this build has no libcairo: no PNG of the curves in %s", log->dir);
    LK_TRY(lk__record_path(log->dir, "curves", ".svg", log->run, path));
    LK_TRY(lk__record_path(log->dir, "curves", ".png", log->run, png));
    return lk__callbacks_add(&log->records, lk_callback_curves(path, has_png ? png : NULL));
}

/* --- hooks: each calls that of all records, in order -------------------------------------------------------------- */

static lk_status log_dir_begin(log_dir *log, lk_trainer *trainer)
{
    char path[PATH_MAX];
    if (log->records.n == 0) {
        LK_TRY(log_dir_take_run_number(log, &log->run));
        LK_TRY(log_dir_add_records(log));
    }
    LK_TRY(lk__callbacks_train_begin(&log->records, trainer));
    LK_TRY(lk__record_path(log->dir, "algorithms", ".txt", log->run, path));
    return lk_tuning_write(lk_trainer_implementations(trainer), path);
}

static lk_status log_dir_train_begin(void *self, lk_trainer *trainer)
{
    log_dir *log = self;
    lk_status status = log->is_complete ? LK_OK : log_dir_begin(log, trainer);
    if (status != LK_OK) /* train_end is only called after a train_begin that succeeded */
        lk__callbacks_train_end(&log->records, trainer, &(lk_train_result){0}, status);
    return status;
}

static lk_status log_dir_epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    const log_dir *log = self;
    return lk__callbacks_epoch_begin(&log->records, trainer, epoch);
}

static lk_status log_dir_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    const log_dir *log = self;
    const char *stopped_by = NULL;
    lk_status status = lk__callbacks_step_end(&log->records, trainer, report, &stopped_by);
    *stop = stopped_by != NULL;
    return status;
}

static lk_status log_dir_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    const log_dir *log = self;
    const char *stopped_by = NULL;
    lk_status status = lk__callbacks_epoch_end(&log->records, trainer, report, &stopped_by);
    *stop = stopped_by != NULL;
    return status;
}

static lk_status log_dir_rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    const log_dir *log = self;
    return lk__callbacks_rest(&log->records, trainer, report);
}

static lk_status log_dir_save(void *self, lk_trainer *trainer, lk_state *state)
{
    const log_dir *log = self;
    if (log->records.n == 0)
        return LK_OK;
    lk_state_set(state, "run", (double[]){log->run}, 1);
    lk__json_open(state->out, "records", '{');
    LK_TRY(lk__callbacks_save(&log->records, trainer, state));
    lk__json_close(state->out, '}');
    return LK_OK;
}

/* Clears *same if a file of the run is not the one that was saved: its callback would empty it. A run may go on without
 * its steps' files, which are large, or were not written by an earlier version. */
static lk_status log_dir_check_same_files(const log_dir *log, const lk_state *records, bool *same)
{
    static const struct {
        const char *record, *stem, *extension; /* record: the name of the callback that writes the file */
        bool may_lack;
    } files[] = {{"CSV", "epochs", ".csv", false},
                 {"JSON lines", "epochs", ".jsonl", false},
                 {"steps as CSV", "steps", ".csv", true},
                 {"steps as JSON lines", "steps", ".jsonl", true}};
    char path[PATH_MAX];
    int64_t bytes;
    *same = true;
    for (size_t i = 0; i < sizeof files / sizeof *files && *same; i++) {
        lk_state own = {.in = json_object_get(records->in, files[i].record)};
        LK_TRY(lk__record_path(log->dir, files[i].stem, files[i].extension, log->run, path));
        *same = (files[i].may_lack && access(path, F_OK) != 0) || lk__state_has_mark(&own, path, &bytes);
    }
    return LK_OK;
}

/* *complete: nothing is left to train, and the records say so. A process that was killed at its end may not have
 * written their last line. */
static lk_status log_dir_check_complete(const log_dir *log, const lk_trainer *trainer, bool *complete)
{
    char path[PATH_MAX];
    lk_run *run = NULL;
    bool is_over = trainer->progress.epoch >= trainer->plan.epochs || trainer->fit->result->stopped_by;
    *complete = false;
    if (!is_over || !lk_checkpoint_get_info(trainer->resumed)->finished)
        return LK_OK;
    LK_TRY(lk__record_path(log->dir, "epochs", ".jsonl", log->run, path));
    if (lk_run_read(path, &run) == LK_ERR_MEMORY)
        return LK_ERR_MEMORY;
    lk_error_clear(); /* damaged records begin anew */
    *complete = run && run->finished;
    lk_run_release(run);
    return LK_OK;
}

/* Continues the saved run's records if the folder still holds its files; otherwise the records begin anew. */
static lk_status log_dir_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    log_dir *log = self;
    double run;
    bool same;
    lk_state records = {.in = json_object_get(state->in, "records")};
    if (lk_state_get(state, "run", &run, 1) != 1 || !(run >= 0 && run < INT_MAX) || log->records.n > 0)
        return LK_OK;
    log->run = (int)run;
    LK_TRY(log_dir_check_same_files(log, &records, &same));
    if (!same)
        return LK_OK;
    LK_TRY(log_dir_check_complete(log, trainer, &log->is_complete));
    if (log->is_complete)
        return LK_OK;
    LK_TRY(log_dir_add_records(log));
    return lk__callbacks_resume(&log->records, trainer, &records);
}

static lk_status log_dir_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    log_dir *log = self;
    char path[PATH_MAX];
    const lk_scaling_report *report = lk_trainer_scaling(trainer);
    lk_status ended = lk__callbacks_train_end(&log->records, trainer, result, status);
    if (ended != LK_OK || !report || log->is_complete)
        return ended;
    LK_TRY(lk__record_path(log->dir, "scaling", ".json", log->run, path));
    return lk_scaling_write(report, path);
}

static void log_dir_release(void *self)
{
    log_dir *log = self;
    lk__callbacks_release(&log->records);
    lk__free(log->dir);
    lk__free(log);
}

lk_callback lk_callback_log_dir(const char *dir)
{
    log_dir *log = lk__calloc(1, sizeof *log);
    if (!log)
        return (lk_callback){0};
    log->dir = lk__strdup(dir);
    if (!log->dir || log_dir_make(log->dir) != LK_OK) {
        log_dir_release(log);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "log folder",
                         .train_begin = log_dir_train_begin,
                         .epoch_begin = log_dir_epoch_begin,
                         .step_end = log_dir_step_end,
                         .epoch_end = log_dir_epoch_end,
                         .rest = log_dir_rest,
                         .save = log_dir_save,
                         .resume = log_dir_resume,
                         .train_end = log_dir_train_end,
                         .release = log_dir_release,
                         .self = log};
}
