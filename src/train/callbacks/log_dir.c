/* All records of a run in one folder. */
#include "lockstep/callbacks.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/build.h"
#include "lockstep/record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RECORDS = 4, MAX_RUNS = 1000000 };

typedef struct log_dir {
    char *dir;
    lk_callback records[MAX_RECORDS];
    int n_records, n_begun;
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

/* The first number that no run has taken yet, taken by making its CSV file: of two runs that look at the same time only
 * one can. */
static lk_status take_number(const log_dir *log, int *number)
{
    for (int run = 1; run <= MAX_RUNS; run++) {
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

static lk_status add_record(log_dir *log, lk_callback record)
{
    if (!record.name)
        return lk_error_status();
    log->records[log->n_records++] = record;
    return LK_OK;
}

/* As lk_build_components calls it. */
static bool has_cairo(void)
{
    size_t count;
    const lk_component *components = lk_build_components(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(components[i].name, "libcairo") == 0)
            return components[i].present;
    return false;
}

static lk_status add_curves(log_dir *log, int run)
{
    bool with_png = has_cairo();
    if (!with_png)
        lk__log(LK_LOG_INFO, "this build has no libcairo: no PNG of the curves in %s", log->dir);
    char *svg = path_of(log, "curves", run, "svg"), *png = path_of(log, "curves", run, "png");
    lk_status status = svg && png ? add_record(log, lk_callback_curves(svg, with_png ? png : NULL)) : LK_ERR_MEMORY;
    lk__free(svg);
    lk__free(png);
    return status;
}

static lk_status add_records(log_dir *log)
{
    int run;
    LK_TRY(take_number(log, &run));
    LK_TRY(add_record(log, lk_callback_tensorboard(log->dir)));
    char *csv = path_of(log, "epochs", run, "csv"), *lines = path_of(log, "epochs", run, "jsonl");
    lk_json_lines_opts opts = {.settings = true, .ledger = true};
    lk_status status = csv && lines ? add_record(log, lk_callback_csv(csv)) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = add_record(log, lk_callback_json_lines(lines, &opts));
    lk__free(csv);
    lk__free(lines);
    return status == LK_OK ? add_curves(log, run) : status;
}

/* --- hooks: each record's, in order ------------------------------------------------------------------------------- */

static lk_status end_records(log_dir *log, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    lk_status first = LK_OK;
    for (int i = 0; i < log->n_begun; i++) {
        lk_callback *record = &log->records[i];
        lk_status ended = record->train_end ? record->train_end(record->self, trainer, result, status) : LK_OK;
        first = first == LK_OK ? ended : first;
    }
    log->n_begun = 0;
    return first;
}

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    log_dir *log = self;
    lk_status status = log->n_records == 0 ? add_records(log) : LK_OK;
    for (log->n_begun = 0; status == LK_OK && log->n_begun < log->n_records; log->n_begun += status == LK_OK) {
        lk_callback *record = &log->records[log->n_begun];
        status = record->train_begin ? record->train_begin(record->self, trainer) : LK_OK;
    }
    if (status != LK_OK)
        end_records(log, trainer, &(lk_train_result){0}, status);
    return status;
}

static lk_status epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    log_dir *log = self;
    for (int i = 0; i < log->n_records; i++)
        if (log->records[i].epoch_begin)
            LK_TRY(log->records[i].epoch_begin(log->records[i].self, trainer, epoch));
    return LK_OK;
}

static double rate_from_records(void *self, lk_trainer *trainer, double epoch, double rate)
{
    log_dir *log = self;
    for (int i = 0; i < log->n_records; i++)
        if (log->records[i].rate)
            rate = log->records[i].rate(log->records[i].self, trainer, epoch, rate);
    return rate;
}

static lk_status step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    log_dir *log = self;
    for (int i = 0; i < log->n_records; i++)
        if (log->records[i].step_end)
            LK_TRY(log->records[i].step_end(log->records[i].self, trainer, report, stop));
    return LK_OK;
}

static lk_status epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    log_dir *log = self;
    for (int i = 0; i < log->n_records; i++)
        if (log->records[i].epoch_end)
            LK_TRY(log->records[i].epoch_end(log->records[i].self, trainer, report, stop));
    return LK_OK;
}

static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    return end_records(self, trainer, result, status);
}

static void release(void *self)
{
    log_dir *log = self;
    for (int i = 0; i < log->n_records; i++)
        log->records[i].release(log->records[i].self);
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
                         .train_end = train_end,
                         .release = release,
                         .self = log};
}
