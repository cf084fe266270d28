#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"
#include "cli/train_flags.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct verify_config {
    lk_train_config train; /* first, as cli_parse_train requires */
    const char *devices;
    int64_t steps;
} verify_config;

#define AT(field) .offset = offsetof(verify_config, field)

/* clang-format off: one paragraph per option */
static const lk_option own_options[] = {
    {.name = "devices",
     .type = LK_OPTION_STRING,
     AT(devices),
     .default_text = "1xcpu,2xcpu,3xcpu",
     .value = "SPECS",
     .help = "sets of devices to compare, joined by commas; a number means that many GPUs or, without one, cores"},
    CLI_STEPS_OPTION(verify_config, "number of steps to train on each"),
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

/* A comparison works with any data; a recipe keeps its own. */
static const char any_data[] = "auto";

/* Takes the options of train, except those about evaluation, --strategy and what is for some strategies alone, and
 * --devices, which is a list here. */
static size_t verify_make_options(lk_option *table)
{
    static const char *const without[] = {"devices", "strategy", "storage", "top-k", "ema", CLI_EVALUATION_OPTIONS,
                                          NULL};
    size_t count = cli_train_options(own_options, OWN_OPTION_COUNT, without, table);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, "data") == 0)
            table[i].default_text = any_data;
    return count;
}

static void verify_amend(void *config)
{
    lk_train_config *train = &((verify_config *)config)->train;
    cli_leave_out_records(train);
    train->checks.top_k = 0;
    if (!train->recipe)
        train->data.name = any_data;
}

enum { MAX_SPECS = 64 };

/* Cuts `text` at its commas, in place, and stores the first MAX_SPECS parts. A bare number is written out with its
 * kind, as in "2xcpu", in numbers[], 16 bytes each, so that the output names it. Returns the number of parts. */
static int verify_split_specs(char *text, const char **specs, char (*numbers)[16])
{
    int count = 0;
    for (char *next, *item = text; item; item = next, count++) {
        char *comma = strchr(item, ',');
        next = comma ? comma + 1 : NULL;
        if (comma)
            *comma = '\0';
        if (count >= MAX_SPECS)
            continue;
        size_t digits = strspn(item, "0123456789");
        specs[count] = item;
        const char *kind = digits > 0 && digits < 8 && item[digits] == '\0' ? lk_devices_best_kind() : NULL;
        if (kind) {
            snprintf(numbers[count], sizeof numbers[count], "%sx%s", item, kind);
            specs[count] = numbers[count];
        }
    }
    return count;
}

typedef struct comparison {
    int64_t steps;
    bool terminal;            /* standard error is one */
    bool noted;               /* a fallback from data "auto" to synthetic has been reported, or there was none */
    const char *first;        /* the devices of the first run */
    uint64_t implementations; /* the hash of its implementations */
    atomic_bool interrupted;
} comparison;

static void verify_interrupt(void *work)
{
    comparison *c = work;
    atomic_store(&c->interrupted, true);
}

static bool verify_show_step(void *user, const char *devices, int64_t step)
{
    comparison *c = user;
    cli_clear_line();
    if (c->terminal)
        fprintf(stderr, "%s  step %lld/%lld", devices, (long long)step, (long long)c->steps);
    return !atomic_load(&c->interrupted);
}

static void verify_print_run(void *user, const lk_verify_run *run)
{
    comparison *c = user;
    cli_clear_line();
    if (run->plan->fell_back && !c->noted)
        cli_note_fallback();
    c->noted = true;
    if (!c->first) {
        c->first = run->devices;
        c->implementations = run->plan->implementations;
    }
    printf("%-8s %s\n", run->devices, run->digest);
    if (run->plan->implementations != c->implementations)
        printf("%-8s other implementations than on %s: %s, hash %016llx in place of %016llx\n", "", c->first,
               lk_tuning_machine(run->implementations), (unsigned long long)run->plan->implementations,
               (unsigned long long)c->implementations);
    fflush(stdout);
}

static int verify_print_result(const verify_config *config, const lk_verify_opts *opts, const lk_verify_result *result)
{
    if (result->identical) {
        printf("identical after %lld step%s with %lld shard%s", (long long)config->steps, config->steps == 1 ? "" : "s",
               (long long)result->shards, result->shards == 1 ? "" : "s");
        if (strcmp(config->train.execution.algorithms, "fast") != 0) {
            fputs(", algorithms ", stdout);
            cli_print_clean(config->train.execution.algorithms, stdout);
        }
        putchar('\n');
        return 0;
    }
    printf("different: after step %lld %s on %s (replica %d) is not what it is on %s\n", (long long)result->step,
           result->tensor, opts->specs[result->run], result->replica, opts->specs[0]);
    return 1;
}

static int verify_specs(verify_config *config, char *list)
{
    const char *specs[MAX_SPECS];
    char numbers[MAX_SPECS][16];
    comparison c = {.steps = config->steps, .terminal = cli_can_redraw()};
    lk_verify_opts opts = {.specs = specs,
                           .steps = config->steps,
                           .step_done = verify_show_step,
                           .run_done = verify_print_run,
                           .user = &c};
    opts.count = verify_split_specs(list, specs, numbers);
    if (opts.count > MAX_SPECS)
        return cli_usage_error("--devices names %d sets of devices: at most %d can be compared", opts.count, MAX_SPECS);
    if (opts.count == 1)
        return cli_usage_error("--devices %s: must name at least two sets of devices, such as 1,2", list);
    lk_verify_result result;
    cli_catch_interrupts(verify_interrupt);
    cli_set_work(&c);
    lk_status status = lk_verify(&config->train, &opts, &result);
    cli_set_work(NULL);
    cli_clear_line();
    if (status != LK_OK)
        return cli_fail();
    return verify_print_result(config, &opts, &result);
}

static int verify_run(int argc, char **argv)
{
    verify_config config = {0};
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = verify_make_options(options);
    if (cli_parse_train(options, count, argc, argv, &config, verify_amend) != LK_OK)
        return cli_fail();
    lk_log_set(cli_print_log_once, NULL, LK_LOG_INFO);
    char *list = strdup(config.devices);
    if (!list) {
        cli_out_of_memory();
        return 1;
    }
    int status = verify_specs(&config, list);
    free(list);
    return status;
}

const cli_command cmd_verify = {
    .name = "verify",
    .summary = "Train on several sets of devices and compare the results bit for bit",
    .details =
        "Prints the digest of each run. The exit status is 0 if all are identical; else it is 1, and the first step\n"
        "and tensor that differ are printed. The first interrupt (control-C) ends the comparison after the\n"
        "current step with exit status 130; a second one ends at once.\n",
    .make_options = verify_make_options,
    .run = verify_run,
};
