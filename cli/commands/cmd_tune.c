#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"
#include "cli/train_flags.h"

#include "lockstep/tune.h"

#include <stdatomic.h>

typedef struct tune_config {
    lk_train_config train; /* first, as cli_parse_train requires */
    const char *out;
    int64_t samples;
} tune_config;

#define AT(field) .offset = offsetof(tune_config, field)

/* clang-format off: one paragraph per option */
static const lk_option own_options[] = {
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "FILE",
     .help = "file to write the choices to, for --algorithms FILE; an existing file is replaced (required)"},
    {.name = "samples",
     .type = LK_OPTION_INT64,
     AT(samples),
     .default_text = "5",
     .minimum = 1,
     .maximum = 1000,
     .value = "N",
     .help = "number of times to measure each implementation, of which the median counts"},
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t tune_make_options(lk_option *table)
{
    static const char *const without[] = {"algorithms", NULL};
    return cli_train_options(own_options, OWN_OPTION_COUNT, without, table);
}

/* Leaves out a recipe's printing and records, which are meant for a training. */
static void tune_amend(void *config)
{
    cli_leave_out_records(&((tune_config *)config)->train);
}

/* --- the display -------------------------------------------------------------------------------------------------- */

typedef struct display {
    bool terminal; /* standard error is one */
    atomic_bool interrupted;
} display;

static void tune_interrupt(void *work)
{
    display *d = work;
    atomic_store(&d->interrupted, true);
}

static void tune_print_head(void)
{
    printf("%-19s %-19s %9s  %-19s %9s %6s  %s\n", "operator", "built-in", "ms", "fastest", "ms", "times", "problem");
}

static void tune_print_row(const lk_tune_row *row)
{
    int c = row->chosen;
    if (row->index == 1)
        tune_print_head();
    printf("%-19s %-19s %9.3f  %-19s %9.3f %6.2f  %s\n", row->op, row->names[0], 1e3 * row->seconds[0],
           c == 0 ? "the same" : row->names[c], 1e3 * row->seconds[c], row->seconds[0] / row->seconds[c], row->problem);
    fflush(stdout);
}

static bool tune_show_row(void *user, const lk_tune_row *row, int next)
{
    display *d = user;
    cli_clear_line();
    if (next == row->n)
        tune_print_row(row);
    else if (d->terminal)
        fprintf(stderr, "%d/%d  %s  %s", row->index, row->count, row->op, row->names[next]);
    return !atomic_load(&d->interrupted);
}

static bool tune_show_step(void *user, int64_t done, int64_t of)
{
    display *d = user;
    cli_clear_line();
    if (d->terminal && done < of)
        fprintf(stderr, "whole steps  %lld/%lld", (long long)done, (long long)of);
    return !atomic_load(&d->interrupted);
}

static void tune_print_end(const lk_tune_result *result, const char *out)
{
    if (result->changed == 0)
        printf("\nThe built-in choices are the fastest for all %d problems.\n", lk_tuning_count(result->tuning));
    else
        printf("\n%d of %d choices are not the built-in ones. ", result->changed, lk_tuning_count(result->tuning));
    double ratio = result->tuned > 0 ? result->built_in / result->tuned : 0;
    if (result->changed > 0 && ratio > 0)
        printf("A step takes %.2f ms%s with them, %.2f ms with the built-in ones: %.2f times as %s.\n",
               1e3 * result->tuned, result->elapsed ? "" : " of processor time", 1e3 * result->built_in,
               ratio < 1 ? 1 / ratio : ratio, ratio < 1 ? "long, so training is faster without the file" : "fast");
    else if (result->changed > 0)
        printf("None of them runs in a training or an evaluation, where their operators are fused into others.\n");
    printf("%s written: hash %016llx\n", out, (unsigned long long)lk_tuning_hash(result->tuning));
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static lk_status tune_write_file(const tune_config *config, display *d)
{
    lk_tune_opts opts = {
        .samples = config->samples, .measuring = tune_show_row, .comparing = tune_show_step, .user = d};
    lk_tune_result result;
    lk_status status = lk_tune(&config->train, &opts, &result);
    cli_clear_line();
    if (status == LK_OK)
        status = lk_tuning_write(result.tuning, config->out);
    if (status == LK_OK)
        tune_print_end(&result, config->out);
    lk_tuning_release(result.tuning);
    return status;
}

static int tune_run(int argc, char **argv)
{
    tune_config config = {0};
    display d = {.terminal = cli_can_redraw()};
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = tune_make_options(options);
    if (cli_parse_train(options, count, argc, argv, &config, tune_amend) != LK_OK)
        return cli_fail();
    if (cli_check_one_process(&config.train) != 0)
        return 2;
    if (!config.out || !*config.out)
        return cli_usage_error("--out is missing: name a file for the choices");
    if (cli_check_file("out", config.out) != 0)
        return 1;
    lk_log_set(cli_print_log_once, NULL, LK_LOG_INFO);
    cli_catch_interrupts(tune_interrupt);
    cli_set_work(&d);
    lk_status status = tune_write_file(&config, &d);
    cli_set_work(NULL);
    return status == LK_OK ? 0 : cli_fail();
}

const cli_command cmd_tune = {
    .name = "tune",
    .summary = "Measure which implementations are fastest for a network",
    .details =
        "Measures every implementation of the convolutions of a training step and of an evaluation, in the sizes\n"
        "that shards have, as processor time on the first device. The one of --out is FILE below: it lists the\n"
        "fastest implementations, and `lockstep train --algorithms FILE` uses them. Like any other setting, that\n"
        "changes the bits of the results.\n"
        "\n"
        "On a GPU these are cuDNN's engines, and the time is what passes until the GPU has done the work. The first\n"
        "run takes minutes: cuDNN compiles engines. FILE pins each by its name; products of matrices stay with\n"
        "cuBLASLt's own choice, which FILE records and requires.\n"
        "\n"
        "The built-in choice stays unless another implementation takes at most 0.95 of its time. Prints both times,\n"
        "and at the end the time of whole training steps. FILE is for this instruction set and version of oneDNN, or\n"
        "for this model of GPU and these versions of its libraries.\n"
        "\n"
        "An interrupt (control-C) ends tuning with exit status 130, and FILE stays as it was; a second one ends at\n"
        "once.\n",
    .make_options = tune_make_options,
    .run = tune_run,
};
