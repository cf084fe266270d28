#include "cli.h"
#include "progress.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct training {
    lk_train_config config;
    cli_progress progress;
    bool output_failed; /* nobody gets the JSON lines: not worth training on */
} training;

/* --- JSON lines --------------------------------------------------------------------------------------------------- */

/* What was not measured is null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *mean(lk_mean m)
{
    return m.count ? number(m.sum / (double)m.count) : json_null();
}

/* Takes the object. False where it could not be written; main says so when it looks at the stream. */
static bool print_line(json_t *object)
{
    if (!object) {
        fputs("lockstep: out of memory for a line of JSON\n", stderr);
        return false;
    }
    bool written = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
    written = written && putchar('\n') != EOF;
    written = fflush(stdout) == 0 && written;
    json_decref(object);
    return written;
}

static json_t *ledger(const lk_ledger_report *report)
{
    return json_pack("{sI sI sI}", "used_once", (json_int_t)report->used_once, "unused", (json_int_t)report->unused,
                     "repeated", (json_int_t)report->repeated);
}

static bool print_epoch_json(const lk_epoch_report *report, bool with_ledger)
{
    json_t *line = json_pack("{ss sI so so so so so so}", "event", "epoch", "epoch", (json_int_t)report->epoch,
                             "train_loss", mean(report->train_loss), "train_accuracy", mean(report->train_accuracy),
                             "val_loss", mean(report->val_loss), "val_accuracy", mean(report->val_accuracy), "seconds",
                             number(report->seconds), "images_per_second", number(report->images_per_second));
    if (line && with_ledger) {
        json_object_set_new(line, "train_ledger", ledger(&report->train_ledger));
        if (report->val_loss.count)
            json_object_set_new(line, "val_ledger", ledger(&report->val_ledger));
    }
    return print_line(line);
}

static bool print_done_json(const lk_trainer *trainer, const lk_train_result *result)
{
    lk_strategy *strategy = lk_trainer_strategy(trainer);
    json_t *devices = json_array();
    for (int r = 0; r < lk_strategy_num_replicas(strategy); r++)
        json_array_append_new(devices, json_string(lk_device_name(lk_strategy_device(strategy, r))));
    return print_line(
        json_pack("{ss sI so so so ss so sI sI}", "event", "done", "steps", (json_int_t)result->steps, "seconds",
                  number(result->seconds), "images_per_second", number(result->images_per_second), "val_accuracy",
                  mean(result->val_accuracy), "digest", result->digest, "devices", devices, "shards",
                  (json_int_t)lk_trainer_plan(trainer)->shards, "samples_seen", (json_int_t)result->samples_seen));
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static void on_step(void *user, const lk_step_report *report)
{
    training *t = user;
    cli_progress_step(&t->progress, report);
}

static bool on_epoch(void *user, const lk_epoch_report *report)
{
    training *t = user;
    lk_epoch_report shown = *report;
    if (!t->config.ledger)
        shown.train_ledger = shown.val_ledger = (lk_ledger_report){.first_bad = -1};
    cli_progress_epoch(&t->progress, &shown);
    if (t->config.json)
        t->output_failed = !print_epoch_json(report, t->config.ledger);
    return !t->output_failed;
}

static lk_status train(training *t, lk_trainer *trainer)
{
    lk_train_result result;
    lk_train_callbacks callbacks = {.step = on_step, .epoch = on_epoch, .user = t};
    cli_progress_start(&t->progress, lk_trainer_plan(trainer));
    lk_status status = lk_trainer_fit(trainer, &callbacks, &result);
    cli_progress_clear(&t->progress);
    if (status != LK_OK)
        return status;
    cli_progress_done(&t->progress, &result);
    if (t->config.json)
        t->output_failed = !print_done_json(trainer, &result);
    return LK_OK;
}

static int run(int argc, char **argv)
{
    training t = {0};
    if (cli_parse(&cmd_train, argc, argv, &t.config, NULL) != LK_OK)
        return cli_fail();
    lk_log_set(cli_print_log, &t.progress, LK_LOG_INFO);
    lk_trainer *trainer = lk_trainer_new(&t.config);
    lk_status status = trainer ? train(&t, trainer) : lk_error_status();
    lk_trainer_release(trainer);
    if (t.output_failed)
        return 1;
    return status == LK_OK ? 0 : cli_fail();
}

const cli_command cmd_train = {
    .name = "train",
    .summary = "Train a network",
    .details = "Epochs are reported on standard error; --json prints them on standard output, one object a line, and\n"
               "last an object with the digest of the trained parameters: the same for any number of devices.\n",
    .options = lk_train_options,
    .option_count = LK_TRAIN_OPTION_COUNT,
    .run = run,
};
