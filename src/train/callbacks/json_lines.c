/* Writes lines that are JSON objects: the settings, each epoch, and the end of training. */
#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"
#include "io/json.h"
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/parameter_server.h"
#include "report/scaling_file.h"
#include "train/checkpoint/callback_state.h"
#include "train/plan/settings.h"
#include "train/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

typedef struct json_lines {
    char *path;
    bool to_stdout, opened;
    lk_append_file file; /* valid if opened and not to_stdout */
    lk_json_lines_opts opts;
    lk_bytes line;
    bool epoch_open;     /* steps were reported since the last epoch's end */
    lk_step_report last; /* the last step */
} json_lines;

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* Writes null for a value that was not measured. */
static void json_lines_put_real(json_lines *j, const char *name, double value)
{
    lk__json_field(&j->line, lk__real_or_null(name, value));
}

static void json_lines_put_mean(json_lines *j, const char *name, lk_mean value)
{
    json_lines_put_real(j, name, lk_mean_value(value));
}

static void json_lines_put_int(json_lines *j, const char *name, int64_t value)
{
    lk__json_field(&j->line, LK_INT(name, value));
}

static void json_lines_put_text(json_lines *j, const char *name, const char *value)
{
    lk__json_field(&j->line, LK_TEXT(name, value));
}

static void json_lines_put_ledger(json_lines *j, const char *name, const lk_ledger_report *report)
{
    lk__json_open(&j->line, name, '{');
    json_lines_put_int(j, "used_once", report->used_once);
    json_lines_put_int(j, "unused", report->unused);
    json_lines_put_int(j, "repeated", report->repeated);
    lk__json_close(&j->line, '}');
}

static void json_lines_put_devices(json_lines *j, const lk_trainer *trainer)
{
    lk_strategy *strategy = lk_trainer_strategy(trainer);
    lk__json_open(&j->line, "devices", '[');
    for (int r = 0; r < lk_strategy_num_replicas(strategy); r++)
        json_lines_put_text(j, NULL, lk_device_name(lk_strategy_device(strategy, r)));
    lk__json_close(&j->line, ']');
}

/* Writes everything besides the settings that decides the bits: dtypes, kernels, transport. */
static void json_lines_put_execution(json_lines *j, const lk_trainer *trainer)
{
    const lk_plan *plan = lk_trainer_plan(trainer);
    const lk_train_config *config = lk_trainer_config(trainer);
    json_lines_put_text(j, "dtype", lk_dtype_name(plan->dtype));
    lk__json_field(&j->line, LK_BOOL("tf32", plan->tf32));
    json_lines_put_int(j, "micro_batch", plan->micro_batch);
    json_lines_put_text(j, "executor", config->execution.executor == LK_EXECUTOR_EAGER ? "eager" : "program");
    json_lines_put_text(j, "fuse", config->execution.fuse == LK_FUSE_OFF ? "off" : "on");
    json_lines_put_text(j, "algorithms", plan->algorithms);
    lk__json_hash(&j->line, "implementations", plan->implementations);
    json_lines_put_text(j, "transport", plan->transport);
    json_lines_put_text(j, "reduce", plan->reduce == LK_REDUCE_NCCL ? "nccl" : "tree");
}

static void json_lines_begin_event(json_lines *j, const char *event)
{
    lk__bytes_clear(&j->line);
    lk__json_open(&j->line, NULL, '{');
    json_lines_put_text(j, "event", event);
}

static lk_status json_lines_write(json_lines *j)
{
    lk__json_close(&j->line, '}');
    lk__bytes_char(&j->line, '\n');
    LK_TRY(lk__bytes_status(&j->line));
    if (!j->to_stdout)
        return lk__append(&j->file, j->line.data, j->line.size);
    bool written = fwrite(j->line.data, 1, j->line.size, stdout) == j->line.size;
    if (fflush(stdout) != 0 || !written)
        LK_FAIL(LK_ERR_IO, "a line of JSON could not be written to standard output: %s", strerror(errno));
    return LK_OK;
}

/* Tells that an elastic training goes on with other processes: see LK_WORLD_VARIABLE. */
static lk_status json_lines_write_world(json_lines *j, const lk_trainer *trainer)
{
    const char *change = getenv(LK_WORLD_VARIABLE);
    char *reason;
    if (!change)
        return LK_OK;
    json_lines_begin_event(j, "world");
    json_lines_put_int(j, "step", trainer->progress.position.steps);
    json_lines_put_int(j, "processes_before", strtoll(change, &reason, 10));
    json_lines_put_int(j, "processes", trainer->plan.processes);
    json_lines_put_int(j, "devices", trainer->plan.devices);
    json_lines_put_text(j, "reason", reason + (*reason == ' '));
    return json_lines_write(j);
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static lk_status json_lines_put_setting(void *user, const lk_field *setting)
{
    json_lines *j = user;
    lk__json_field(&j->line, *setting);
    return LK_OK;
}

/* Writes what a command that repeats the run needs besides the settings. */
static void json_lines_put_origin(json_lines *j, const lk_trainer *trainer)
{
    const char *data_dir = trainer->config.data.dir;
    if (data_dir && *data_dir)
        json_lines_put_text(j, "data-dir", data_dir);
    if (trainer->is_unrepeatable)
        lk__json_field(&j->line, LK_BOOL("repeatable", false));
}

static lk_status json_lines_train_begin(void *self, lk_trainer *trainer)
{
    json_lines *j = self;
    j->epoch_open = false;
    if (!j->to_stdout && !j->opened)
        LK_TRY(lk__append_open(&j->file, j->path, O_TRUNC));
    j->opened = true;
    if (j->opts.settings) { /* also of a training that was resumed, whose epochs or devices may be others */
        json_lines_begin_event(j, "settings");
        json_lines_put_origin(j, trainer);
        LK_TRY(lk__settings_visit(trainer, json_lines_put_setting, j));
        LK_TRY(json_lines_write(j));
    }
    return json_lines_write_world(j, trainer);
}

static lk_status json_lines_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    json_lines *j = self;
    j->epoch_open = true;
    j->last = *report;
    return LK_OK;
}

static lk_status json_lines_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    json_lines *j = self;
    const lk_metrics *train = &report->train, *val = &report->val;
    j->epoch_open = false;
    json_lines_begin_event(j, "epoch");
    json_lines_put_int(j, "epoch", report->epoch);
    json_lines_put_mean(j, "train_loss", train->loss);
    json_lines_put_mean(j, "train_accuracy", train->accuracy);
    json_lines_put_mean(j, "val_loss", val->loss);
    json_lines_put_mean(j, "val_accuracy", val->accuracy);
    json_lines_put_real(j, "seconds", report->seconds);
    json_lines_put_real(j, "images_per_second", report->images_per_second);
    json_lines_put_int(j, "steps", report->steps);
    json_lines_put_real(j, "rate", report->rate);
    json_lines_put_real(j, "total_seconds", report->total_seconds);
    json_lines_put_int(j, "skipped_steps", report->skipped_steps);
    if (lk_trainer_plan(trainer)->top_k > 0) {
        json_lines_put_mean(j, "train_top_k", train->top_k);
        json_lines_put_mean(j, "val_top_k", val->top_k);
    }
    if (j->opts.ledger)
        json_lines_put_ledger(j, "train_ledger", &report->train_ledger);
    if (j->opts.ledger && val->loss.count)
        json_lines_put_ledger(j, "val_ledger", &report->val_ledger);
    return json_lines_write(j);
}

/* Writes the counts of a parameter server's training; the histogram of staleness ends at the last bin that is not 0. */
static void json_lines_put_async(json_lines *j, const lk_async_report *r)
{
    int bins = LK_STALENESS_BINS;
    if (!r)
        return;
    while (bins > 0 && r->staleness[bins - 1] == 0)
        bins--;
    lk__json_open(&j->line, "asynchronous", '{');
    json_lines_put_int(j, "updates", r->updates);
    json_lines_put_int(j, "handed_out", r->handed_out);
    json_lines_put_int(j, "handed_again", r->handed_again);
    json_lines_put_int(j, "repeated_pushes", r->repeated_pushes);
    json_lines_put_int(j, "refused_pushes", r->refused_pushes);
    json_lines_put_int(j, "workers_joined", r->workers_joined);
    json_lines_put_int(j, "workers_lost", r->workers_lost);
    json_lines_put_int(j, "server_restarts", r->server_restarts);
    json_lines_put_int(j, "lost_updates", r->lost_updates);
    json_lines_put_int(j, "max_staleness", r->max_staleness);
    lk__json_open(&j->line, "staleness", '[');
    for (int s = 0; s < bins; s++)
        json_lines_put_int(j, NULL, r->staleness[s]);
    lk__json_close(&j->line, ']');
    lk__json_close(&j->line, '}');
}

static lk_status json_lines_write_done(json_lines *j, const lk_trainer *trainer, const lk_train_result *result)
{
    json_lines_begin_event(j, "done");
    json_lines_put_int(j, "steps", result->steps);
    json_lines_put_real(j, "seconds", result->seconds);
    json_lines_put_real(j, "images_per_second", result->images_per_second);
    json_lines_put_mean(j, "val_accuracy", result->val.accuracy);
    json_lines_put_text(j, "digest", result->digest);
    json_lines_put_text(j, "state_digest", result->state_digest);
    json_lines_put_devices(j, trainer);
    json_lines_put_int(j, "shards", lk_trainer_plan(trainer)->shards);
    json_lines_put_int(j, "samples_seen", result->samples_seen);
    json_lines_put_int(j, "epochs", result->epochs);
    json_lines_put_real(j, "total_seconds", result->total_seconds);
    json_lines_put_mean(j, "val_loss", result->val.loss);
    json_lines_put_real(j, "flops_per_second", result->flops_per_second);
    json_lines_put_text(j, "stopped_by", result->stopped_by);
    json_lines_put_execution(j, trainer);
    json_lines_put_async(j, lk_trainer_async_report(trainer));
    if (lk_trainer_scaling(trainer))
        lk__scaling_put(&j->line, "scaling", lk_trainer_scaling(trainer));
    return json_lines_write(j);
}

static lk_status json_lines_write_stopped(json_lines *j, const lk_train_result *result, lk_status status)
{
    json_lines_begin_event(j, "stopped");
    json_lines_put_text(j, "status", lk_status_name(status));
    json_lines_put_text(j, "message", lk_error_message());
    json_lines_put_int(j, "epochs", result->epochs);
    json_lines_put_int(j, "steps", result->steps);
    json_lines_put_int(j, "samples_seen", result->samples_seen);
    json_lines_put_real(j, "seconds", result->seconds);
    json_lines_put_real(j, "total_seconds", result->total_seconds);
    if (j->epoch_open) {
        lk__json_open(&j->line, "partial", '{');
        json_lines_put_int(j, "epoch", j->last.epoch);
        json_lines_put_int(j, "step", j->last.step);
        json_lines_put_mean(j, "train_loss", j->last.so_far.loss);
        json_lines_put_mean(j, "train_accuracy", j->last.so_far.accuracy);
        lk__json_close(&j->line, '}');
    }
    return json_lines_write(j);
}

static lk_status json_lines_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    return status == LK_OK ? json_lines_write_done(self, trainer, result)
                           : json_lines_write_stopped(self, result, status);
}

static lk_status json_lines_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    json_lines *j = self;
    if (j->opened && !j->to_stdout)
        lk__state_set_mark(state, lk__append_mark(&j->file));
    return LK_OK;
}

/* If the file is not the one that was marked, train_begin starts a new one. */
static lk_status json_lines_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    json_lines *j = self;
    int64_t bytes;
    if (j->to_stdout || j->opened || !lk__state_has_mark(state, j->path, &bytes))
        return LK_OK;
    LK_TRY(lk__append_open(&j->file, j->path, 0));
    j->opened = true;
    return lk__append_cut(&j->file, bytes);
}

static void json_lines_release(void *self)
{
    json_lines *j = self;
    if (!j->to_stdout && j->opened)
        lk__append_close(&j->file);
    lk__bytes_free(&j->line);
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
        json_lines_release(j);
        return (lk_callback){0};
    }
    j->to_stdout = strcmp(path, "-") == 0;
    j->opts = opts ? *opts : (lk_json_lines_opts){0};
    return (lk_callback){.name = "JSON lines",
                         .train_begin = json_lines_train_begin,
                         .step_end = json_lines_step_end,
                         .epoch_end = json_lines_epoch_end,
                         .save = json_lines_save,
                         .resume = json_lines_resume,
                         .train_end = json_lines_train_end,
                         .release = json_lines_release,
                         .self = j};
}
