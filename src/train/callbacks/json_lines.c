/* Writes a JSON object a line: epochs, and how training ended. */
#include "lockstep/callbacks.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"
#include "io/json.h"
#include "lockstep/parameter_server.h"
#include "train/callback_state.h"
#include "train/callbacks/settings.h"
#include "train/scaling.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct json_lines {
    char *path;
    bool to_stdout, opened, resumed;
    lk__append_file file; /* where it is open */
    lk_json_lines_opts opts;
    lk__bytes line;
    bool epoch_open;     /* steps have been reported since the last epoch's end */
    lk_step_report last; /* the last of them */
} json_lines;

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* What was not measured is null. */
static void put_real(json_lines *j, const char *name, double value)
{
    lk__json_field(&j->line, isfinite(value) ? LK_REAL(name, value) : LK_NONE(name));
}

static void put_mean(json_lines *j, const char *name, lk_mean value)
{
    put_real(j, name, lk_mean_value(value));
}

static void put_int(json_lines *j, const char *name, int64_t value)
{
    lk__json_field(&j->line, LK_INT(name, value));
}

static void put_text(json_lines *j, const char *name, const char *value)
{
    lk__json_field(&j->line, LK_TEXT(name, value));
}

static void put_ledger(json_lines *j, const char *name, const lk_ledger_report *report)
{
    lk__json_open(&j->line, name, '{');
    put_int(j, "used_once", report->used_once);
    put_int(j, "unused", report->unused);
    put_int(j, "repeated", report->repeated);
    lk__json_close(&j->line, '}');
}

static void put_devices(json_lines *j, const lk_trainer *trainer)
{
    lk_strategy *strategy = lk_trainer_strategy(trainer);
    lk__json_open(&j->line, "devices", '[');
    for (int r = 0; r < lk_strategy_num_replicas(strategy); r++)
        put_text(j, NULL, lk_device_name(lk_strategy_device(strategy, r)));
    lk__json_close(&j->line, ']');
}

/* What runs it, and with it decides the bits. */
static void put_implementations(json_lines *j, const lk_trainer *trainer)
{
    char hash[24];
    const lk_plan *plan = lk_trainer_plan(trainer);
    const lk_train_config *config = lk_trainer_config(trainer);
    put_text(j, "dtype", lk_dtype_name(plan->dtype));
    lk__json_field(&j->line, LK_BOOL("tf32", plan->tf32));
    put_int(j, "micro_batch", plan->micro_batch);
    put_text(j, "executor", config->executor == LK_EXECUTOR_EAGER ? "eager" : "program");
    put_text(j, "fuse", config->fuse == LK_FUSE_OFF ? "off" : "on");
    snprintf(hash, sizeof hash, "%016" PRIx64, plan->implementations);
    put_text(j, "algorithms", plan->algorithms);
    put_text(j, "implementations", hash);
    put_text(j, "transport", plan->transport);
    put_text(j, "reduce", plan->reduce == LK_REDUCE_NCCL ? "nccl" : "tree");
}

static void begin_line(json_lines *j, const char *event)
{
    lk__bytes_clear(&j->line);
    lk__json_open(&j->line, NULL, '{');
    put_text(j, "event", event);
}

static lk_status end_line(json_lines *j)
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

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static lk_status put_setting(void *user, const lk_field *setting)
{
    json_lines *j = user;
    lk__json_field(&j->line, *setting);
    return LK_OK;
}

static lk_status write_settings(json_lines *j, const lk_trainer *trainer)
{
    begin_line(j, "settings");
    LK_TRY(lk__settings_visit(trainer, put_setting, j));
    return end_line(j);
}

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    json_lines *j = self;
    j->epoch_open = false;
    if (!j->to_stdout && !j->opened)
        LK_TRY(lk__append_open(&j->file, j->path, O_TRUNC));
    j->opened = true;
    bool is_said = j->resumed && !lk_trainer_config(trainer)->override;
    j->resumed = false;
    return j->opts.settings && !is_said ? write_settings(j, trainer) : LK_OK;
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
    begin_line(j, "epoch");
    put_int(j, "epoch", report->epoch);
    put_mean(j, "train_loss", train->loss);
    put_mean(j, "train_accuracy", train->accuracy);
    put_mean(j, "val_loss", val->loss);
    put_mean(j, "val_accuracy", val->accuracy);
    put_real(j, "seconds", report->seconds);
    put_real(j, "images_per_second", report->images_per_second);
    put_int(j, "steps", report->steps);
    put_real(j, "rate", report->rate);
    put_real(j, "total_seconds", report->total_seconds);
    put_int(j, "skipped_steps", report->skipped_steps);
    if (train->top_k.count) {
        put_mean(j, "train_top_k", train->top_k);
        put_mean(j, "val_top_k", val->top_k);
    }
    if (j->opts.ledger)
        put_ledger(j, "train_ledger", &report->train_ledger);
    if (j->opts.ledger && val->loss.count)
        put_ledger(j, "val_ledger", &report->val_ledger);
    return end_line(j);
}

/* How often which staleness occurred, as far as one did. */
static void put_async(json_lines *j, const lk_async_report *r)
{
    int bins = LK_STALENESS_BINS;
    if (!r)
        return;
    while (bins > 0 && r->staleness[bins - 1] == 0)
        bins--;
    lk__json_open(&j->line, "asynchronous", '{');
    put_int(j, "updates", r->updates);
    put_int(j, "handed_out", r->handed_out);
    put_int(j, "handed_again", r->handed_again);
    put_int(j, "repeated_pushes", r->repeated_pushes);
    put_int(j, "refused_pushes", r->refused_pushes);
    put_int(j, "workers_joined", r->workers_joined);
    put_int(j, "workers_lost", r->workers_lost);
    put_int(j, "server_restarts", r->server_restarts);
    put_int(j, "lost_updates", r->lost_updates);
    put_int(j, "max_staleness", r->max_staleness);
    lk__json_open(&j->line, "staleness", '[');
    for (int s = 0; s < bins; s++)
        put_int(j, NULL, r->staleness[s]);
    lk__json_close(&j->line, ']');
    lk__json_close(&j->line, '}');
}

static lk_status write_done(json_lines *j, const lk_trainer *trainer, const lk_train_result *result)
{
    begin_line(j, "done");
    put_int(j, "steps", result->steps);
    put_real(j, "seconds", result->seconds);
    put_real(j, "images_per_second", result->images_per_second);
    put_mean(j, "val_accuracy", result->val.accuracy);
    put_text(j, "digest", result->digest);
    put_text(j, "state_digest", result->state_digest);
    put_devices(j, trainer);
    put_int(j, "shards", lk_trainer_plan(trainer)->shards);
    put_int(j, "samples_seen", result->samples_seen);
    put_int(j, "epochs", result->epochs);
    put_real(j, "total_seconds", result->total_seconds);
    put_mean(j, "val_loss", result->val.loss);
    put_real(j, "flops_per_second", result->flops_per_second);
    put_text(j, "stopped_by", result->stopped_by);
    put_implementations(j, trainer);
    put_async(j, lk_trainer_async_report(trainer));
    if (lk_trainer_scaling(trainer))
        lk__scaling_put(&j->line, "scaling", lk_trainer_scaling(trainer));
    return end_line(j);
}

static lk_status write_stopped(json_lines *j, const lk_train_result *result, lk_status status)
{
    begin_line(j, "stopped");
    put_text(j, "status", lk_status_name(status));
    put_text(j, "message", lk_error_message());
    put_int(j, "epochs", result->epochs);
    put_int(j, "steps", result->steps);
    put_int(j, "samples_seen", result->samples_seen);
    put_real(j, "seconds", result->seconds);
    put_real(j, "total_seconds", result->total_seconds);
    if (j->epoch_open) {
        lk__json_open(&j->line, "partial", '{');
        put_int(j, "epoch", j->last.epoch);
        put_int(j, "step", j->last.step);
        put_mean(j, "train_loss", j->last.so_far.loss);
        put_mean(j, "train_accuracy", j->last.so_far.accuracy);
        lk__json_close(&j->line, '}');
    }
    return end_line(j);
}

static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    return status == LK_OK ? write_done(self, trainer, result) : write_stopped(self, result, status);
}

static lk_status save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    json_lines *j = self;
    if (j->opened && !j->to_stdout)
        lk__state_set_mark(state, lk__append_mark(&j->file));
    return LK_OK;
}

/* Another file begins anew. */
static lk_status resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    json_lines *j = self;
    int64_t bytes;
    if (j->to_stdout || j->opened || !lk__state_has_mark(state, j->path, &bytes))
        return LK_OK;
    LK_TRY(lk__append_open(&j->file, j->path, 0));
    j->opened = j->resumed = true;
    return lk__append_cut(&j->file, bytes);
}

static void release(void *self)
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
        release(j);
        return (lk_callback){0};
    }
    j->to_stdout = strcmp(path, "-") == 0;
    j->opts = opts ? *opts : (lk_json_lines_opts){0};
    return (lk_callback){.name = "JSON lines",
                         .train_begin = train_begin,
                         .step_end = step_end,
                         .epoch_end = epoch_end,
                         .save = save,
                         .resume = resume,
                         .train_end = train_end,
                         .release = release,
                         .self = j};
}
