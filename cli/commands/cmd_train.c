#include "cli/cli.h"
#include "cli/commands/train_role.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"
#include "cli/train_flags.h"

#include "lockstep/callbacks.h"
#include "lockstep/parameter_server.h"
#include "lockstep/scaling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct training {
    lk_train_config config; /* first, as cli_parse_train requires */
    const char *trace;      /* NULL: none */
    bool verbose;
    cli_progress progress;
} training;

static const lk_option own_options[] = {
    {.name = "verbose",
     .group = "Records and output",
     .type = LK_OPTION_FLAG,
     .offset = offsetof(training, verbose),
     .help = "end with where the time of a step went, what the exchange took, and predictions for more devices"},
    {.name = "trace",
     .group = "Records and output",
     .type = LK_OPTION_STRING,
     .offset = offsetof(training, trace),
     .value = "FILE",
     .help =
         "file for a recording of what ran when on every device and thread, which ui.perfetto.dev shows; of several "
         "processes only rank 0 or the chief, which computes no step, makes one (default: none)"},
};

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t train_make_options(lk_option *table)
{
    memcpy(table, lk_train_options, LK_TRAIN_OPTION_COUNT * sizeof *table);
    memcpy(table + LK_TRAIN_OPTION_COUNT, own_options, sizeof own_options);
    return LK_TRAIN_OPTION_COUNT + OWN_OPTION_COUNT;
}

/* Runs on one device get a report only if it is kept, for comparison with runs on several. */
static lk_status train_add_scaling(const training *t, lk_trainer *trainer)
{
    const char *dir = t->config.records.log_dir && *t->config.records.log_dir ? t->config.records.log_dir : NULL;
    bool has_others = lk_trainer_plan(trainer)->devices > 1 || lk_trainer_async_report(trainer);
    return has_others || dir ? lk_trainer_add(trainer, lk_callback_scaling(dir)) : LK_OK;
}

/* Options of checkpoints without their folder have no effect, which somebody would notice too late. */
static int train_check_folder(const lk_train_config *config)
{
    const lk_checkpoint_config *c = &config->checkpoints;
    lk_train_config defaults;
    if ((c->dir && *c->dir) || lk_options_defaults(lk_train_options, LK_TRAIN_OPTION_COUNT, &defaults) != LK_OK)
        return 0;
    const char *without = strcmp(c->every, defaults.checkpoints.every) != 0 ? "checkpoint-every"
                          : c->keep != defaults.checkpoints.keep            ? "keep"
                          : c->best != defaults.checkpoints.best            ? "checkpoint-best"
                                                                            : NULL;
    return without ? cli_usage_error("--%s: must be with --checkpoint-dir, the folder for checkpoints", without) : 0;
}

/* The trainer adds the callbacks of the configuration behind these, so that the bar is removed before a line is
 * printed. */
static lk_status train_add_callbacks(training *t, lk_trainer *trainer)
{
    bool is_first = lk_trainer_plan(trainer)->process == 0;
    lk_status status = train_add_scaling(t, trainer);
    if (status == LK_OK && is_first && t->trace)
        status = lk_trainer_add(trainer, lk_callback_trace(t->trace));
    return status == LK_OK && is_first ? cli_progress_add(&t->progress, trainer) : status;
}

/* Prints the last lines of Keras scripts, if one of their other lines was asked for. */
static void train_print_test_lines(const lk_train_config *config, const lk_metrics *val)
{
    bool asked = config->records.throughput || config->records.total_time || config->stop.target_accuracy >= 0;
    if (asked && val->loss.count)
        fprintf(config->stop.stream, "Test loss: %.4f\nTest accuracy: %.4f\n", lk_mean_value(val->loss),
                lk_mean_value(val->accuracy));
}

/* Prints the last lines also if training has ended but its last checkpoint or record could not be written. */
static lk_status train_fit(training *t, lk_trainer *trainer)
{
    lk_train_result result = {.steps = 0};
    lk_status status = train_add_callbacks(t, trainer);
    if (status == LK_OK)
        status = lk_trainer_fit(trainer, &result);
    if (status == LK_ERR_INTERRUPTED || !*result.digest)
        return status;
    if (lk_trainer_plan(trainer)->process == 0) {
        train_print_test_lines(&t->config, &result.val);
        cli_progress_done(&t->progress, trainer, &result);
    }
    cli_print_async(trainer);
    return status;
}

static lk_status train_or_work(training *t, lk_train_role role, bool *was_made)
{
    cli_catch_interrupts(cli_interrupt_trainer);
    lk_trainer *trainer = lk_trainer_new(&t->config);
    cli_set_work(trainer);
    lk_status status = lk_error_status();
    if (status == LK_ERR_STATE && role == LK_TRAIN_WORKER && !trainer)
        status = cli_note_late_worker();
    else if (trainer)
        status = role == LK_TRAIN_WORKER ? cli_run_worker(trainer) : train_fit(t, trainer);
    *was_made = trainer != NULL;
    if (status == LK_OK)
        cli_ignore_interrupts();
    cli_set_work(NULL);
    lk_trainer_release(trainer);
    return status;
}

/* Warns if mpirun or TF_CONFIG says that there are several processes, but each trains alone, which is hardly what was
 * meant. */
static void train_warn_of_others(const lk_train_config *config)
{
    const char *cluster = getenv("TF_CONFIG");
    if (!config->devices.strategy && cluster && strstr(cluster, "\"task\""))
        fputs(
            "warning: TF_CONFIG names a task of a cluster, but this process trains by itself; processes train together "
            "with --strategy multi-worker\n",
            stderr);
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *processes = getenv("OMPI_COMM_WORLD_SIZE");
    if (config->devices.strategy || !rank || !processes || strcmp(rank, "0") != 0 || strcmp(processes, "1") == 0)
        return;
    fprintf(stderr,
            "warning: mpirun has started %s processes, and each of them trains by itself; they train together "
            "with --strategy multi-worker\n",
            processes);
}

static int train_run(int argc, char **argv)
{
    training t = {0};
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = train_make_options(options);
    if (cli_parse_train(options, count, argc, argv, &t, NULL) != LK_OK)
        return cli_fail();
    if (t.trace && *t.trace && cli_check_file("trace", t.trace) != 0)
        return 1;
    int code = train_check_folder(&t.config);
    if (code != 0)
        return code;
    t.progress.ledger = t.config.records.ledger;
    t.progress.verbose = t.verbose;
    t.config.stop.stream = t.config.records.json ? stderr : stdout;
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    train_warn_of_others(&t.config);
    lk_train_role role;
    bool joined = true;
    lk_status status = lk_train_role_of(&t.config, &role);
    if (status == LK_OK)
        status = role == LK_TRAIN_PS ? cli_serve_parameters(&t.config) : train_or_work(&t, role, &joined);
    /* A process that was interrupted before it joined must not wait here: the others would wait for it to join,
     * forever. */
    if (status == LK_OK || (status == LK_ERR_INTERRUPTED && joined)) {
        lk_status left = lk_leave_processes();
        status = status == LK_OK ? left : status;
    }
    if (status == LK_OK)
        return 0;
    code = cli_fail();
    if (status == LK_ERR_INTERRUPTED)
        code = cli_interrupted_status();
    lk_abandon_processes();
    return code;
}

const cli_command cmd_train = {
    .name = "train",
    .summary = "Train a network",
    .examples = "  lockstep train --data pictures --resize 64x64 --epochs 20 --checkpoint-dir runs/a --log-dir logs/a\n"
                "  lockstep train --data pictures --resize 64x64 --epochs 20 --checkpoint-dir runs/a --resume\n"
                "  lockstep train --recipe resnet18 --devices 2 --dtype bf16 --plot\n"
                "  lockstep launch -n 2 -- train --model net.lk --data mnist --augment shift=0.1\n",
    .details =
        "Prints the plan and a line per epoch on standard error. --json prints an object per epoch on standard\n"
        "output, and a last object with the digest of parameters and buffers, which is the same for any number of\n"
        "devices.\n"
        "\n"
        "The lines of --throughput, --total-time, --target-accuracy and --early-stop go to standard output or, with\n"
        "--json, to standard error. With one of the first three, test loss and test accuracy are printed at the end.\n"
        "\n"
        "--log-dir writes an event file for TensorBoard, epochs.csv, epochs.jsonl, steps.csv, steps.jsonl,\n"
        "curves.svg, curves.png, scaling.json, and algorithms.txt, with which --algorithms repeats the\n"
        "implementations of this run. If an earlier run's files are there, the names are epochs-2.csv and so on.\n"
        "\n"
        "A run on several devices ends with their speed-up; --verbose adds where the time of a step went, and\n"
        "`lockstep report` prints more about a --log-dir.\n"
        "\n"
        "--trace writes a recording when training ends: operators with shapes and flops, queues, exchange, loader\n"
        "and waits, in Chrome's trace event format. `lockstep profile` adds up where the time goes.\n"
        "\n"
        "The first interrupt (control-C) ends training after the current step, writes its records and gives exit\n"
        "status 130; a second one ends at once. An interrupt also ends the decoding or download of a data set.\n",
    .make_options = train_make_options,
    .config_size = sizeof(training),
    .run = train_run,
};
