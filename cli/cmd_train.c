#include "cli.h"
#include "interrupts.h"
#include "roles.h"
#include "progress.h"
#include "train_flags.h"

#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/parameter_server.h"
#include "lockstep/scaling.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct training {
    lk_train_config config; /* first: cli_parse_train wants it there */
    const char *trace;      /* NULL: none */
    cli_progress progress;
    FILE *lines;   /* where --throughput and its like print */
    FILE *nowhere; /* /dev/null */
} training;

static const lk_option own_options[] = {
    {.name = "trace",
     .type = LK_OPTION_STRING,
     .offset = offsetof(training, trace),
     .value = "FILE",
     .help = "record what ran when on every device and thread, for ui.perfetto.dev (unset: nothing)"},
};

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t make_options(lk_option *table)
{
    memcpy(table, lk_train_options, LK_TRAIN_OPTION_COUNT * sizeof *table);
    memcpy(table + LK_TRAIN_OPTION_COUNT, own_options, sizeof own_options);
    return LK_TRAIN_OPTION_COUNT + OWN_OPTION_COUNT;
}

/* In the order in which they are called: the drawing has to go before a line is printed, the bar before another line.
 */
static lk_status add_records(training *t, lk_trainer *trainer)
{
    const lk_train_config *config = &t->config;
    lk_status status = t->trace ? lk_trainer_add(trainer, lk_callback_trace(t->trace)) : LK_OK;
    if (status == LK_OK && config->plot)
        status = lk_trainer_add(trainer, lk_callback_live_plot(stderr));
    if (status == LK_OK)
        status = cli_progress_add(&t->progress, trainer);
    if (status == LK_OK && config->json)
        status = lk_trainer_add(trainer, lk_callback_json_lines("-", &(lk_json_lines_opts){.ledger = config->ledger}));
    if (status == LK_OK && config->log_dir && *config->log_dir)
        status = lk_trainer_add(trainer, lk_callback_log_dir(config->log_dir));
    return status;
}

/* For runs on several devices, or on workers', and for those on one that these may be compared with. */
static lk_status add_scaling(const training *t, lk_trainer *trainer)
{
    const char *dir = t->config.log_dir && *t->config.log_dir ? t->config.log_dir : NULL;
    bool has_others = lk_trainer_plan(trainer)->devices > 1 || lk_trainer_async_report(trainer);
    return has_others || dir ? lk_trainer_add(trainer, lk_callback_scaling(dir)) : LK_OK;
}

static lk_status add_checkpoints(const lk_train_config *config, lk_trainer *trainer)
{
    lk_checkpoint_opts opts = {.keep = config->keep, .best = (lk_best_metric)config->checkpoint_best};
    lk_status status = lk_checkpoint_parse_every(config->checkpoint_every, &opts);
    return status == LK_OK ? lk_trainer_add(trainer, lk_callback_checkpoint(config->checkpoint_dir, &opts)) : status;
}

/* Of several processes the first one alone writes and prints; each ends where its callbacks say so, which they do
 * alike. */
static lk_status add_callbacks(training *t, lk_trainer *trainer)
{
    const lk_train_config *config = &t->config;
    bool is_first = lk_trainer_plan(trainer)->process == 0;
    lk_status status = add_scaling(t, trainer);
    if (status == LK_OK && is_first)
        status = add_records(t, trainer);
    if (!is_first)
        t->lines = t->nowhere;
    if (status == LK_OK && config->throughput)
        status = lk_trainer_add(trainer, lk_callback_throughput(t->lines));
    if (status == LK_OK && config->target_accuracy >= 0)
        status = lk_trainer_add(trainer, lk_callback_stop_at_accuracy(config->target_accuracy,
                                                                      lk_trainer_plan(trainer)->patience, t->lines));
    if (status == LK_OK && config->early_stop > 0)
        status = lk_trainer_add(trainer, lk_callback_stop_on_plateau(config->early_stop, 0, t->lines));
    if (status == LK_OK && config->total_time)
        status = lk_trainer_add(trainer, lk_callback_total_time(t->lines));
    if (status == LK_OK && is_first && config->checkpoint_dir && *config->checkpoint_dir)
        status = add_checkpoints(config, trainer);
    return status;
}

/* As Keras scripts end, where one of their lines was asked for. */
static void print_test_lines(const training *t, const lk_metrics *val)
{
    bool asked = t->config.throughput || t->config.total_time || t->config.target_accuracy >= 0;
    if (asked && val->loss.count)
        fprintf(t->lines, "Test loss: %.4f\nTest accuracy: %.4f\n", lk_mean_value(val->loss),
                lk_mean_value(val->accuracy));
}

/* Training that was done has its last lines, also where its last checkpoint or record could not be written. */
static lk_status train(training *t, lk_trainer *trainer)
{
    lk_train_result result = {.steps = 0};
    lk_status status = add_callbacks(t, trainer);
    if (status == LK_OK)
        status = lk_trainer_fit(trainer, &result);
    if (status == LK_ERR_INTERRUPTED || !*result.digest)
        return status;
    print_test_lines(t, &result.val);
    if (lk_trainer_plan(trainer)->process == 0)
        cli_progress_done(trainer, &result);
    cli_print_async(trainer);
    return status;
}

static void interrupt(void *trainer)
{
    lk_trainer_interrupt(trainer);
}

static lk_status train_or_work(training *t, lk_train_role role, bool *was_made)
{
    cli_catch_interrupts(interrupt);
    lk_trainer *trainer = lk_trainer_new(&t->config);
    cli_set_work(trainer);
    lk_status status = lk_error_status();
    if (trainer)
        status = role == LK_TRAIN_WORKER ? cli_work(trainer) : train(t, trainer);
    *was_made = trainer != NULL;
    cli_set_work(NULL);
    lk_trainer_release(trainer);
    return status;
}

/* Several that were started together and of which each trains all by itself are hardly what was meant. */
static void warn_of_others(const lk_train_config *config)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *processes = getenv("OMPI_COMM_WORLD_SIZE");
    if (config->strategy || !rank || !processes || strcmp(rank, "0") != 0 || strcmp(processes, "1") == 0)
        return;
    fprintf(stderr,
            "warning: mpirun has started %s processes, and each of them trains by itself; they train together "
            "with --strategy multi-worker\n",
            processes);
}

static int run(int argc, char **argv)
{
    training t = {0};
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = make_options(options);
    if (cli_parse_train(options, count, argc, argv, &t, NULL) != LK_OK)
        return cli_fail();
    if (t.trace && *t.trace && cli_check_file("trace", t.trace) != 0)
        return 1;
    t.progress.ledger = t.config.ledger;
    t.lines = t.config.json ? stderr : stdout;
    t.nowhere = fopen("/dev/null", "we");
    if (!t.nowhere)
        return cli_usage_error("/dev/null: %s", strerror(errno));
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    warn_of_others(&t.config);
    lk_train_role role;
    bool joined = true;
    lk_status status = lk_train_role_of(&t.config, &role);
    if (status == LK_OK)
        status = role == LK_TRAIN_PS ? cli_serve_parameters(&t.config) : train_or_work(&t, role, &joined);
    /* Others would wait for ever for one that was interrupted before it came to train with them. */
    if (status == LK_OK || (status == LK_ERR_INTERRUPTED && joined)) {
        lk_status left = lk_leave_processes();
        status = status == LK_OK ? left : status;
    }
    fclose(t.nowhere);
    if (status == LK_OK)
        return 0;
    int code = cli_fail();
    lk_abandon_processes();
    return code;
}

const cli_command cmd_train = {
    .name = "train",
    .summary = "Train a network",
    .details =
        "Epochs are reported on standard error; --json prints them on standard output, one object a line, and\n"
        "last an object with the digest of the trained parameters: the same for any number of devices.\n"
        "\n"
        "The lines that --throughput, --total-time, --target-accuracy and --early-stop ask for go to standard\n"
        "output, or, with --json, to standard error; with one of the first three the test loss and accuracy follow\n"
        "at the end.\n"
        "\n"
        "--log-dir writes an event file for TensorBoard, epochs.csv, epochs.jsonl, curves.svg, curves.png,\n"
        "scaling.json, and, for --algorithms of a run that is to be like this one, algorithms.txt;\n"
        "where an earlier run's are there the names are epochs-2.csv and so on.\n"
        "\n"
        "A run on several devices ends with what they gained and where a step's time went; so does `lockstep report`\n"
        "of a --log-dir, with more of it.\n"
        "\n"
        "--trace writes a recording of operators with shapes and flops, queues, exchange, loader and waits, in\n"
        "Chrome's trace event format, when training ends; `lockstep profile` adds up where the time goes.\n"
        "\n"
        "The first interrupt (control-C) ends training after the step at hand, with its records written and exit\n"
        "status 130; a second ends at once. While pictures are decoded, or a data set is downloaded, it ends that.\n",
    .make_options = make_options,
    .config_size = sizeof(training),
    .run = run,
};
