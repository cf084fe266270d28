#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"
#include "cli/train_flags.h"

#include "lockstep/callbacks.h"
#include "lockstep/lr_find.h"
#include "lockstep/plot.h"

#include <math.h>
#include <stdlib.h>

typedef struct find_config {
    lk_train_config train; /* first, as cli_parse_train requires */
    double low, high;
    int64_t steps;
    const char *out;
} find_config;

#define AT(field) .offset = offsetof(find_config, field)

/* A paragraph an option. */
/* clang-format off */
static const lk_option own_options[] = {
    {.name = "low",
     .type = LK_OPTION_DOUBLE,
     AT(low),
     .default_text = "1e-06",
     .least = 1e-12, .greatest = 1e6,
     .value = "RATE",
     .help = "learning rate of the first update"},
    {.name = "high",
     .type = LK_OPTION_DOUBLE,
     AT(high),
     .default_text = "10",
     .least = 1e-12, .greatest = 1e6,
     .value = "RATE",
     .help = "learning rate of the last update"},
    {.name = "steps",
     .type = LK_OPTION_INT64,
     AT(steps),
     .default_text = "100",
     .minimum = 10, .maximum = 1000000,
     .value = "N",
     .help = "number of updates"},
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "FILE",
     .help = "draw loss and smoothed loss over the rate to this file, name.svg or name.png (default: none)"},
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t find_make_options(lk_option *table)
{
    static const char *const without[] = {"base-lr",   "scale-lr",      "schedule", "lr-steps",
                                          "min-lr",    "warmup-epochs", "ema",      "epochs",
                                          "nan-guard", "audit-every",   "top-k",    CLI_EVALUATION_OPTIONS,
                                          NULL};
    return cli_train_options(own_options, OWN_OPTION_COUNT, without, table);
}

static void find_amend(void *config)
{
    lk_train_config *train = &((find_config *)config)->train;
    cli_leave_out_records(train);
    train->checks.top_k = 0;
}

static lk_status find_begin(void *user, lk_trainer *trainer)
{
    (void)user;
    cli_set_work(trainer);
    return LK_OK;
}

/* At most ROWS rows at equal steps, and the lowest, which is marked, and the last one. */
static void find_print_table(const lk_lr_find_result *r)
{
    enum { ROWS = 25 };
    int64_t stride = (r->count + ROWS - 1) / ROWS;
    printf("%10s %9s %9s\n", "rate", "loss", "smoothed");
    for (int64_t i = 0; i < r->count; i++)
        if (i % stride == 0 || i == r->lowest || i == r->count - 1)
            printf("%10.3g %9.4f %9.4f%s\n", r->points[i].rate, r->points[i].loss, r->points[i].smoothed,
                   i == r->lowest ? "  lowest" : "");
}

/* Axes are linear, so the horizontal one shows the exponent of ten. Losses far above the first are left out, which
 * would flatten the curve. */
static lk_status find_draw(const find_config *config, const lk_lr_find_result *r)
{
    double *numbers = calloc((size_t)r->count, 3 * sizeof *numbers);
    double *x = numbers, *loss = x ? x + r->count : NULL, *smoothed = loss ? loss + r->count : NULL;
    if (!numbers)
        return cli_out_of_memory();
    for (int64_t i = 0; i < r->count; i++) {
        double most = 2 * r->points[0].smoothed;
        x[i] = log10(r->points[i].rate);
        loss[i] = r->points[i].loss <= most ? r->points[i].loss : NAN;
        smoothed[i] = r->points[i].smoothed <= most ? r->points[i].smoothed : NAN;
    }
    const lk_series series[] = {{.name = "loss", .x = x, .y = loss, .count = r->count},
                                {.name = "smoothed", .x = x, .y = smoothed, .count = r->count}};
    lk_line_chart chart = {.title = "Range test of the learning rate",
                           .x_label = "learning rate, exponent of ten",
                           .y_label = "training loss",
                           .series = series,
                           .series_count = 2};
    lk_status status = lk_line_chart_write(&chart, config->out);
    free(numbers);
    return status;
}

static void find_print_suggestion(const find_config *config, const lk_lr_find_result *r)
{
    const lk_lr_point *last = &r->points[r->count - 1];
    if (r->diverged)
        printf("\nEnded after %lld updates, at rate %.3g: the loss diverged.\n", (long long)r->count, last->rate);
    if (r->reason)
        printf("%sNo suggestion: %s.\n", r->diverged ? "" : "\n", r->reason);
    else
        printf("%sSuggestion: --base-lr %.2g, where the smoothed loss falls most.\n", r->diverged ? "" : "\n",
               r->suggestion);
    if (config->out)
        printf("%s written\n", config->out);
}

static int find_run(int argc, char **argv)
{
    find_config config = {0};
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = find_make_options(options);
    if (cli_parse_train(options, count, argc, argv, &config, find_amend) != LK_OK)
        return cli_fail();
    if (cli_check_one_process(&config.train) != 0)
        return 2;
    if (config.out && lk_chart_check(config.out) != LK_OK)
        return cli_fail();
    if (config.out && cli_check_file("out", config.out) != 0)
        return 1;
    lk_log_set(cli_print_log_once, NULL, LK_LOG_INFO);
    cli_catch_interrupts(cli_interrupt_trainer);
    lk_lr_find_opts opts = {.low = config.low, .high = config.high, .steps = config.steps, .begin = find_begin};
    lk_lr_find_result result;
    lk_status status = lk_lr_find(&config.train, &opts, &result);
    cli_set_work(NULL);
    if (status == LK_OK && result.count > 0)
        find_print_table(&result);
    if (status == LK_OK && result.count > 0 && config.out)
        status = find_draw(&config, &result);
    if (status == LK_OK && result.count > 0)
        find_print_suggestion(&config, &result);
    else if (status == LK_OK)
        printf("No suggestion: the loss is not finite at rate %g.\n", config.low);
    lk_lr_find_free(&result);
    return status == LK_OK ? 0 : cli_fail();
}

const cli_command cmd_lr_find = {
    .name = "lr-find",
    .summary = "Find a learning rate by training while it grows",
    .examples = "  lockstep lr-find --model keras-cnn\n"
                "  lockstep lr-find --model net.lk --data pictures --low 0.0001 --high 1 --out rates.svg\n",
    .details =
        "Trains from the first weights, or from --weights, for --steps updates while the rate grows by the same\n"
        "factor from update to update (Smith, 2017). Smooths the loss: each one weighs 0.9 times as much as the next.\n"
        "Ends early when the smoothed loss is above 4 times its smallest value, or not finite. Prints at most 27\n"
        "updates, and suggests the rate where the smoothed loss falls most within a tenth of the updates. Nothing is\n"
        "kept: no weights, checkpoints or records.\n",
    .make_options = find_make_options,
    .run = find_run,
};
