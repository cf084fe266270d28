/* All records of a run in one folder. */
#include "lockstep/callbacks.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "lockstep/build.h"
#include "lockstep/record.h"
#include "lockstep/scaling.h"
#include "train/callback_state.h"
#include "train/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RUNS = 1000000 };

typedef struct log_dir {
    char *dir;
    lk__callbacks records;
    int run;          /* whose records they are */
    char *algorithms; /* where the implementations are listed; NULL before there are records */
    char *scaling;    /* where the scaling report goes; likewise */
} log_dir;

/* --- the folder --------------------------------------------------------------------------------------------------- */

static lk_status make_folder(const char *path)
{
    LK_TRY(lk_make_directory(path));
    if (access(path, W_OK | X_OK) != 0)
        LK_FAIL(LK_ERR_IO, "log folder %s: cannot be written: %s", path, strerror(errno));
    return LK_OK;
}

/* "DIR/NAME.EXTENSION" of the first run, "DIR/NAME-2.EXTENSION" of the second; to be freed. */
static char *path_of(const log_dir *log, const char *name, int run, const char *extension)
{
    size_t size = strlen(log->dir) + strlen(name) + strlen(extension) + 32;
    char *path = lk__calloc(size, 1);
    if (path && run == 1)
        snprintf(path, size, "%s/%s.%s", log->dir, name, extension);
    else if (path)
        snprintf(path, size, "%s/%s-%d.%s", log->dir, name, run, extension);
    return path;
}

/* Whether files of that run are there, its CSV file aside. */
static lk_status has_files(const log_dir *log, int run, bool *has)
{
    static const char *const files[][2] = {
        {"epochs", "jsonl"}, {"algorithms", "txt"}, {"scaling", "json"}, {"curves", "svg"}, {"curves", "png"}};
    *has = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !*has; i++) {
        char *path = path_of(log, files[i][0], run, files[i][1]);
        if (!path)
            return LK_ERR_MEMORY;
        *has = access(path, F_OK) == 0;
        lk__free(path);
    }
    return LK_OK;
}

/* The first number of which there are no files, taken by making the CSV file: of two runs that look at the same time
 * only one can. */
static lk_status take_number(const log_dir *log, int *number)
{
    for (int run = 1; run <= MAX_RUNS; run++) {
        bool has;
        LK_TRY(has_files(log, run, &has));
        if (has)
            continue;
        char *path = path_of(log, "epochs", run, "csv");
        if (!path)
            return LK_ERR_MEMORY;
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        int error = errno;
        lk__free(path);
        if (file >= 0) {
            *number = run;
            close(file);
            return LK_OK;
        }
        if (error != EEXIST)
            LK_FAIL(LK_ERR_IO, "log folder %s: cannot be written: %s", log->dir, strerror(error));
    }
    LK_FAIL(LK_ERR_IO, "log folder %s: holds the records of %d runs: remove them or choose another", log->dir,
            MAX_RUNS);
}

/* --- what is in it ------------------------------------------------------------------------------------------------ */

static lk_status add_curves(log_dir *log, int run)
{
    bool with_png = lk_build_has("libcairo");
    if (!with_png)
        lk__log(LK_LOG_INFO, "this build has no libcairo: no PNG of the curves in %s", log->dir);
    char *svg = path_of(log, "curves", run, "svg"), *png = path_of(log, "curves", run, "png");
    lk_status status =
        svg && png ? lk__callbacks_add(&log->records, lk_callback_curves(svg, with_png ? png : NULL)) : LK_ERR_MEMORY;
    lk__free(svg);
    lk__free(png);
    return status;
}

/* Of run log->run. */
static lk_status add_records(log_dir *log)
{
    int run = log->run;
    LK_TRY(lk__callbacks_add(&log->records, lk_callback_tensorboard(log->dir)));
    char *csv = path_of(log, "epochs", run, "csv"), *lines = path_of(log, "epochs", run, "jsonl");
    lk_json_lines_opts opts = {.settings = true, .ledger = true};
    lk_status status = csv && lines ? lk__callbacks_add(&log->records, lk_callback_csv(csv)) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = lk__callbacks_add(&log->records, lk_callback_json_lines(lines, &opts));
    lk__free(csv);
    lk__free(lines);
    log->algorithms = path_of(log, "algorithms", run, "txt");
    log->scaling = path_of(log, "scaling", run, "json");
    if (status == LK_OK && (!log->algorithms || !log->scaling))
        status = LK_ERR_MEMORY;
    return status == LK_OK ? add_curves(log, run) : status;
}

/* --- hooks: each record's, in order ------------------------------------------------------------------------------- */

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    log_dir *log = self;
    lk_status status = LK_OK;
    if (log->records.n == 0)
        status = take_number(log, &log->run);
    if (status == LK_OK && log->records.n == 0)
        status = add_records(log);
    if (status == LK_OK)
        status = lk__callbacks_train_begin(&log->records, trainer);
    if (status == LK_OK)
        status = lk_tuning_write(lk_trainer_implementations(trainer), log->algorithms);
    if (status != LK_OK)
        lk__callbacks_train_end(&log->records, trainer, &(lk_train_result){0}, status);
    return status;
}

static lk_status epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    const log_dir *log = self;
    return lk__callbacks_epoch_begin(&log->records, trainer, epoch);
}

static double rate_from_records(void *self, lk_trainer *trainer, double epoch, double rate)
{
    const log_dir *log = self;
    return lk__callbacks_rate(&log->records, trainer, epoch, rate);
}

static lk_status step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    const log_dir *log = self;
    const char *stopped_by = NULL;
    lk_status status = lk__callbacks_step_end(&log->records, trainer, report, &stopped_by);
    *stop = stopped_by != NULL;
    return status;
}

static lk_status epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    const log_dir *log = self;
    const char *stopped_by = NULL;
    lk_status status = lk__callbacks_epoch_end(&log->records, trainer, report, &stopped_by);
    *stop = stopped_by != NULL;
    return status;
}

static lk_status rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    const log_dir *log = self;
    return lk__callbacks_rest(&log->records, trainer, report);
}

static lk_status save(void *self, lk_trainer *trainer, lk_state *state)
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

/* Whether the run's file is what it was. record: which of the records writes it. */
static lk_status is_as_it_was(const log_dir *log, const lk_state *records, const char *record, const char *extension,
                              bool *is)
{
    int64_t bytes;
    lk_state own = {.in = json_object_get(records->in, record)};
    char *path = path_of(log, "epochs", log->run, extension);
    if (!path)
        return LK_ERR_MEMORY;
    *is = *is && lk__state_has_mark(&own, path, &bytes);
    lk__free(path);
    return LK_OK;
}

/* Whichever folder it is: where its files are others, or gone, records begin anew. */
static lk_status resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    log_dir *log = self;
    double run;
    bool goes_on = true;
    lk_state records = {.in = json_object_get(state->in, "records")};
    if (lk_state_get(state, "run", &run, 1) != 1 || log->records.n > 0)
        return LK_OK;
    log->run = (int)run;
    LK_TRY(is_as_it_was(log, &records, "CSV", "csv", &goes_on));
    LK_TRY(is_as_it_was(log, &records, "JSON lines", "jsonl", &goes_on));
    if (!goes_on)
        return LK_OK;
    LK_TRY(add_records(log));
    return lk__callbacks_resume(&log->records, trainer, &records);
}

static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    log_dir *log = self;
    const lk_scaling_report *report = lk_trainer_scaling(trainer);
    lk_status ended = lk__callbacks_train_end(&log->records, trainer, result, status);
    return ended == LK_OK && report ? lk_scaling_write(report, log->scaling) : ended;
}

static void release(void *self)
{
    log_dir *log = self;
    lk__callbacks_release(&log->records);
    lk__free(log->scaling);
    lk__free(log->algorithms);
    lk__free(log->dir);
    lk__free(log);
}

lk_callback lk_callback_log_dir(const char *dir)
{
    log_dir *log = lk__calloc(1, sizeof *log);
    if (!log)
        return (lk_callback){0};
    log->dir = lk__strdup(dir);
    if (!log->dir || make_folder(log->dir) != LK_OK) {
        release(log);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "log folder",
                         .train_begin = train_begin,
                         .epoch_begin = epoch_begin,
                         .rate = rate_from_records,
                         .step_end = step_end,
                         .epoch_end = epoch_end,
                         .rest = rest,
                         .save = save,
                         .resume = resume,
                         .train_end = train_end,
                         .release = release,
                         .self = log};
}
