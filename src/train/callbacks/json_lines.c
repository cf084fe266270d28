/* Writes a JSON object a line: epochs, and how training ended. */
#include "lockstep/callbacks.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/callbacks/settings.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct json_lines {
    char *path; /* "-": standard output */
    FILE *file; /* NULL: not open yet */
    lk_json_lines_opts opts;
    bool epoch_open;     /* steps have been reported since the last epoch's end */
    lk_step_report last; /* the last of them */
} json_lines;

/* --- values ------------------------------------------------------------------------------------------------------- */

/* What was not measured is null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *mean(lk_mean value)
{
    return number(lk_mean_value(value));
}

/* JSON is UTF-8, a path may be anything. */
static json_t *text(const char *value)
{
    json_t *string = value ? json_string(value) : NULL;
    return string ? string : json_null();
}

static json_t *ledger(const lk_ledger_report *report)
{
    return json_pack("{sI sI sI}", "used_once", (json_int_t)report->used_once, "unused", (json_int_t)report->unused,
                     "repeated", (json_int_t)report->repeated);
}

static json_t *devices(const lk_trainer *trainer)
{
    lk_strategy *strategy = lk_trainer_strategy(trainer);
    json_t *names = json_array();
    for (int r = 0; r < lk_strategy_num_replicas(strategy); r++)
        json_array_append_new(names, json_string(lk_device_name(lk_strategy_device(strategy, r))));
    return names;
}

/* Takes the object. */
static lk_status write_line(json_lines *j, json_t *object)
{
    if (!object)
        LK_FAIL(LK_ERR_MEMORY, "JSON lines: no memory for a line");
    bool written = json_dumpf(object, j->file, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
    written = written && fputc('\n', j->file) != EOF;
    written = fflush(j->file) == 0 && written;
    json_decref(object);
    if (!written)
        LK_FAIL(LK_ERR_IO, "%s: a line of JSON could not be written: %s",
                strcmp(j->path, "-") == 0 ? "standard output" : j->path, strerror(errno));
    return LK_OK;
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static lk_status add_setting(void *user, const char *name, const char *value)
{
    json_object_set_new(user, name, text(value));
    return LK_OK;
}

static lk_status write_settings(json_lines *j, const lk_trainer *trainer)
{
    json_t *line = json_pack("{ss}", "event", "settings");
    if (line)
        lk__settings_visit(trainer, add_setting, line);
    return write_line(j, line);
}

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    json_lines *j = self;
    j->epoch_open = false;
    if (!j->file)
        j->file = strcmp(j->path, "-") == 0 ? stdout : fopen(j->path, "we");
    if (!j->file)
        LK_FAIL(LK_ERR_IO, "%s: cannot be written: %s", j->path, strerror(errno));
    return j->opts.settings ? write_settings(j, trainer) : LK_OK;
}

static lk_status step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    json_lines *j = self;
    j->epoch_open = true;
    j->last = *report;
    return LK_OK;
}

static lk_status epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    json_lines *j = self;
    const lk_metrics *train = &report->train, *val = &report->val;
    j->epoch_open = false;
    json_t *line =
        json_pack("{ss sI so so so so so so sI so so sI}", "event", "epoch", "epoch", (json_int_t)report->epoch,
                  "train_loss", mean(train->loss), "train_accuracy", mean(train->accuracy), "val_loss", mean(val->loss),
                  "val_accuracy", mean(val->accuracy), "seconds", number(report->seconds), "images_per_second",
                  number(report->images_per_second), "steps", (json_int_t)report->steps, "rate", number(report->rate),
                  "total_seconds", number(report->total_seconds), "skipped_steps", (json_int_t)report->skipped_steps);
    if (line && train->top_k.count) {
        json_object_set_new(line, "train_top_k", mean(train->top_k));
        json_object_set_new(line, "val_top_k", mean(val->top_k));
    }
    if (line && j->opts.ledger) {
        json_object_set_new(line, "train_ledger", ledger(&report->train_ledger));
        if (val->loss.count)
            json_object_set_new(line, "val_ledger", ledger(&report->val_ledger));
    }
    return write_line(j, line);
}

static json_t *done(const lk_trainer *trainer, const lk_train_result *result)
{
    return json_pack("{ss sI so so so ss so sI sI sI so so so so}", "event", "done", "steps", (json_int_t)result->steps,
                     "seconds", number(result->seconds), "images_per_second", number(result->images_per_second),
                     "val_accuracy", mean(result->val.accuracy), "digest", result->digest, "devices", devices(trainer),
                     "shards", (json_int_t)lk_trainer_plan(trainer)->shards, "samples_seen",
                     (json_int_t)result->samples_seen, "epochs", (json_int_t)result->epochs, "total_seconds",
                     number(result->total_seconds), "val_loss", mean(result->val.loss), "flops_per_second",
                     number(result->flops_per_second), "stopped_by", text(result->stopped_by));
}

static json_t *stopped(const json_lines *j, const lk_train_result *result, lk_status status)
{
    json_t *line = json_pack("{ss ss so sI sI sI so so}", "event", "stopped", "status", lk_status_name(status),
                             "message", text(lk_error_message()), "epochs", (json_int_t)result->epochs, "steps",
                             (json_int_t)result->steps, "samples_seen", (json_int_t)result->samples_seen, "seconds",
                             number(result->seconds), "total_seconds", number(result->total_seconds));
    if (line && j->epoch_open)
        json_object_set_new(line, "partial",
                            json_pack("{sI sI so so}", "epoch", (json_int_t)j->last.epoch, "step",
                                      (json_int_t)j->last.step, "train_loss", mean(j->last.so_far.loss),
                                      "train_accuracy", mean(j->last.so_far.accuracy)));
    return line;
}

static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    json_lines *j = self;
    if (!j->file)
        return LK_OK;
    return write_line(j, status == LK_OK ? done(trainer, result) : stopped(j, result, status));
}

static void release(void *self)
{
    json_lines *j = self;
    if (j->file && j->file != stdout)
        fclose(j->file);
    lk__free(j->path);
    lk__free(j);
}

lk_callback lk_callback_json_lines(const char *path, const lk_json_lines_opts *opts)
{
    json_lines *j = lk__calloc(1, sizeof *j);
    if (!j)
        return (lk_callback){0};
    j->path = lk__strdup(path);
    if (!j->path) {
        release(j);
        return (lk_callback){0};
    }
    j->opts = opts ? *opts : (lk_json_lines_opts){0};
    return (lk_callback){.name = "JSON lines",
                         .train_begin = train_begin,
                         .step_end = step_end,
                         .epoch_end = epoch_end,
                         .train_end = train_end,
                         .release = release,
                         .self = j};
}
