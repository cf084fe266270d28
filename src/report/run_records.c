/* Reads the files of JSON lines that callbacks/json_lines.c writes for callbacks/log_dir.c. */
#include "base/mem.h"
#include "base/number.h"
#include "base/status.h"
#include "io/append_file.h"
#include "io/json.h"
#include "lockstep/runs.h"
#include "report/record_file.h"
#include "report/record_names.h"
#include "report/run_records.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NUMBER_TEXT = 40 };

/* A run and the memory that it points to. */
typedef struct records {
    lk_run run; /* first, so that lk_run_release can cast it */
    char *path, *digest, *state_digest;
    lk_run_setting *settings; /* owns names and values */
    lk_run_epoch *epochs;
    lk_run_change *changes; /* owns reasons */
    int64_t capacity, changes_capacity;
    bool stopped; /* the last event is the end of an incomplete training */
    json_t *line; /* the last one with settings; NULL: there is none */
    lk_record_tail tail;
} records;

/* --- lines -------------------------------------------------------------------------------------------------------- */

static double run_records_real_member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A value as text. Free it with lk__free. */
static char *run_records_setting_text(const json_t *value)
{
    char number[NUMBER_TEXT];
    if (json_is_string(value))
        return lk__strdup(json_string_value(value));
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        lk__number_print(json_real_value(value), number, sizeof number);
    else
        snprintf(number, sizeof number, "%s", json_is_boolean(value) ? json_is_true(value) ? "yes" : "no" : "");
    return lk__strdup(number);
}

static void run_records_free_settings(records *r)
{
    for (int i = 0; i < r->run.n_settings; i++) {
        lk__free((void *)(uintptr_t)r->settings[i].name);
        lk__free((void *)(uintptr_t)r->settings[i].value);
    }
    lk__free(r->settings);
    r->run.n_settings = 0;
}

static bool run_records_setting_is(const json_t *line, const char *name, const char *value)
{
    const char *own = json_string_value(json_object_get(line, name));
    return own && strcmp(own, value) == 0;
}

/* Returns whether these settings give the same bits on any number of devices. */
static bool run_records_settings_are_exact(const json_t *line)
{
    return !json_is_false(json_object_get(line, "repeatable")) && !run_records_setting_is(line, "compress", "bf16") &&
           !run_records_setting_is(line, "reduce", "nccl") &&
           !run_records_setting_is(line, "strategy in use", "parameter-server");
}

/* Returns whether a training that is resumed with another value of this setting has the bits of one that had the value
 * from the beginning. */
static bool run_records_setting_is_free(const json_t *line, const char *name)
{
    static const char *const names[] = {"data", /* the checkpoint has a hash of its bytes, which is compared */
                                        "data-dir",
                                        "recompute",
                                        "audit-every",
                                        "strategy in use",
                                        "devices in use",
                                        "source of the samples",
                                        "validation micro-batch"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    /* The rates of a cosine depend on the last epoch, and there the best weights are taken back. */
    return strcmp(name, "epochs") == 0 && !run_records_setting_is(line, "schedule", "cosine") &&
           !json_is_true(json_object_get(line, "restore-best"));
}

static bool run_records_settings_are_mixed(const json_t *before, json_t *line)
{
    const char *name;
    json_t *value;
    json_object_foreach(line, name, value)
    {
        const json_t *then = json_object_get(before, name);
        if (then && !json_equal(then, value) && !run_records_setting_is_free(line, name))
            return true;
    }
    return false;
}

/* Keeps the last settings of a run that was resumed. */
static lk_status run_records_read_settings(records *r, json_t *line)
{
    const char *name;
    json_t *value;
    bool was_repeatable = !r->line || (r->run.repeatable && !run_records_settings_are_mixed(r->line, line));
    r->run.repeatable = was_repeatable && run_records_settings_are_exact(line);
    json_decref(r->line);
    r->line = json_incref(line);
    run_records_free_settings(r);
    r->settings = lk__calloc(json_object_size(line) + 1, sizeof *r->settings);
    r->run.settings = r->settings;
    if (!r->settings)
        return LK_ERR_MEMORY;
    json_object_foreach(line, name, value)
    {
        if (strcmp(name, "event") == 0)
            continue;
        char *own_name = lk__strdup(name), *text = run_records_setting_text(value);
        if (!own_name || !text) {
            LK_FREE_ALL(own_name, text);
            return LK_ERR_MEMORY;
        }
        r->settings[r->run.n_settings++] = (lk_run_setting){own_name, text};
    }
    return LK_OK;
}

static lk_status run_records_read_epoch(records *r, const json_t *line, long long number)
{
    const json_t *epoch = json_object_get(line, "epoch");
    int64_t n = r->run.n_epochs;
    if (!json_is_integer(epoch) || json_integer_value(epoch) < 1 ||
        (n > 0 && json_integer_value(epoch) <= r->epochs[n - 1].epoch))
        LK_FAIL(LK_ERR_FORMAT, "%s:%lld: must be an epoch later than the one before", r->path, number);
    LK_TRY(LK_GROW(r->epochs, &r->capacity, n + 1));
    r->run.epochs = r->epochs;
    r->epochs[r->run.n_epochs++] =
        (lk_run_epoch){.epoch = json_integer_value(epoch),
                       .train_loss = run_records_real_member(line, "train_loss"),
                       .train_accuracy = run_records_real_member(line, "train_accuracy"),
                       .val_loss = run_records_real_member(line, "val_loss"),
                       .val_accuracy = run_records_real_member(line, "val_accuracy"),
                       .rate = run_records_real_member(line, "rate"),
                       .total_seconds = run_records_real_member(line, "total_seconds"),
                       .images_per_second = run_records_real_member(line, "images_per_second")};
    return LK_OK;
}

static lk_status run_records_read_change(records *r, const json_t *line)
{
    const char *reason = json_string_value(json_object_get(line, "reason"));
    int64_t n = r->run.n_changes;
    LK_TRY(LK_GROW(r->changes, &r->changes_capacity, n + 1));
    r->run.changes = r->changes;
    r->changes[n] = (lk_run_change){.step = json_integer_value(json_object_get(line, "step")),
                                    .before = json_integer_value(json_object_get(line, "processes_before")),
                                    .after = json_integer_value(json_object_get(line, "processes")),
                                    .reason = lk__strdup(reason ? reason : "")};
    if (!r->changes[n].reason)
        return LK_ERR_MEMORY;
    r->run.n_changes = n + 1;
    return LK_OK;
}

static lk_status run_records_read_end(records *r, const json_t *line)
{
    const char *digest = json_string_value(json_object_get(line, "digest"));
    const char *state = json_string_value(json_object_get(line, "state_digest"));
    LK_FREE_ALL(r->digest, r->state_digest);
    r->run.images_per_second = run_records_real_member(line, "images_per_second");
    r->run.state_digest = r->state_digest = state ? lk__strdup(state) : NULL;
    r->digest = digest ? lk__strdup(digest) : NULL;
    r->run.digest = r->digest;
    r->run.finished = true;
    return (digest && !r->digest) || (state && !r->state_digest) ? LK_ERR_MEMORY : LK_OK;
}

static lk_status run_records_read_line(void *user, const char *text, size_t length, long long number)
{
    records *r = user;
    json_t *line;
    LK_TRY(lk__record_parse(r->path, number, text, length, &line));
    const char *event = json_string_value(json_object_get(line, "event"));
    lk_status status = LK_OK;
    r->stopped = event && strcmp(event, "stopped") == 0;
    if (!event)
        status = lk__fail(LK_ERR_FORMAT, "%s:%lld: must be an object with an event", r->path, number);
    else if (strcmp(event, "settings") == 0)
        status = run_records_read_settings(r, line);
    else if (strcmp(event, "epoch") == 0)
        status = run_records_read_epoch(r, line, number);
    else if (strcmp(event, "world") == 0)
        status = run_records_read_change(r, line);
    else if (strcmp(event, "done") == 0)
        status = run_records_read_end(r, line);
    json_decref(line);
    return status;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Forgets all but the path. */
static void run_records_restart(void *user)
{
    records *r = user;
    run_records_free_settings(r);
    json_decref(r->line);
    for (int64_t i = 0; i < r->run.n_changes; i++)
        lk__free((void *)(uintptr_t)r->changes[i].reason);
    LK_FREE_ALL(r->changes, r->epochs, r->digest, r->state_digest);
    *r = (records){.path = r->path, .tail = r->tail, .run = {.path = r->path, .images_per_second = NAN}};
}

lk_status lk__run_follow(lk_run *run)
{
    records *r = (records *)run;
    lk_status status =
        lk__record_follow(&r->tail, r->path, &(lk_record_reader){run_records_restart, run_records_read_line, r});
    r->run.seconds = r->run.n_epochs > 0 ? r->epochs[r->run.n_epochs - 1].total_seconds : NAN;
    r->run.trains = status == LK_OK && !r->run.finished && !r->stopped && lk__append_is_held(r->path);
    return status;
}

lk_status lk_run_read(const char *path, lk_run **run)
{
    char file[PATH_MAX];
    struct stat about;
    *run = NULL;
    if (stat(path, &about) != 0)
        LK_FAIL(errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode)) {
        int last;
        LK_TRY(lk__record_names_last(path, "epochs", ".jsonl", INT_MAX, &last));
        if (last == 0)
            LK_FAIL(
                LK_ERR_NOT_FOUND,
                "%s: holds no records of a run (epochs.jsonl): name the folder of one; `lockstep runs %s` lists those "
                "in it",
                path, path);
        LK_TRY(lk__record_path(path, "epochs", ".jsonl", last, file));
        path = file;
    }
    records *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    r->path = lk__strdup(path);
    lk_status status = r->path ? lk__run_follow(&r->run) : LK_ERR_MEMORY;
    if (status == LK_OK)
        *run = &r->run;
    else
        lk_run_release(&r->run);
    return status;
}

void lk_run_release(lk_run *run)
{
    records *r = (records *)run;
    if (!r)
        return;
    run_records_restart(r);
    lk__free(r->path);
    lk__free(r);
}

/* --- access ------------------------------------------------------------------------------------------------------- */

const char *lk_run_get_setting(const lk_run *run, const char *name)
{
    for (int i = 0; i < run->n_settings; i++)
        if (strcmp(run->settings[i].name, name) == 0)
            return run->settings[i].value;
    return NULL;
}

int64_t lk_run_last_epoch(const lk_run *run)
{
    return run->n_epochs ? run->epochs[run->n_epochs - 1].epoch : 0;
}

const lk_run_epoch *lk_run_best(const lk_run *run, double *accuracy)
{
    const lk_run_epoch *best = NULL;
    *accuracy = NAN;
    /* The second pass looks at training, if no epoch has a validation accuracy. */
    for (int trained = 0; !best && trained <= 1; trained++) {
        for (int64_t i = 0; i < run->n_epochs; i++) {
            double value = trained ? run->epochs[i].train_accuracy : run->epochs[i].val_accuracy;
            if (isnan(value) || (best && value <= *accuracy))
                continue;
            best = &run->epochs[i];
            *accuracy = value;
        }
    }
    return best;
}

double lk_run_rate(const lk_run *run)
{
    if (!isnan(run->images_per_second) || run->n_epochs == 0)
        return run->images_per_second;
    return run->epochs[run->n_epochs - 1].images_per_second;
}

char *lk_run_json(const lk_run *run)
{
    double accuracy;
    lk_bytes out = {0};
    const lk_run_epoch *best = lk_run_best(run, &accuracy);
    const lk_field fields[] = {
        LK_TEXT("path", run->path),
        LK_TEXT("model", lk_run_get_setting(run, "model")),
        LK_TEXT("data", lk_run_get_setting(run, "data")),
        LK_TEXT("devices", lk_run_get_setting(run, "devices in use")),
        LK_INT("epochs", lk_run_last_epoch(run)),
        best ? LK_REAL("best_accuracy", accuracy) : LK_NONE("best_accuracy"),
        best ? LK_INT("best_epoch", best->epoch) : LK_NONE("best_epoch"),
        LK_TEXT("best_of", !best                       ? NULL
                           : isnan(best->val_accuracy) ? "training"
                                                       : "validation"),
        lk__real_or_null("seconds", run->seconds),
        LK_BOOL("finished", run->finished),
        LK_BOOL("trains", run->trains),
        LK_TEXT("digest", run->digest),
    };
    lk__json_open(&out, NULL, '{');
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        lk__json_field(&out, fields[i]);
    lk__json_close(&out, '}');
    return lk__json_text(&out);
}
