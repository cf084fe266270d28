#include "cli.h"
#include "progress.h"

#include <stdlib.h>
#include <string.h>

typedef struct verify_config {
    lk_train_config train;
    const char *devices;
    int64_t steps;
} verify_config;

#define AT(field) .offset = offsetof(verify_config, field)

/* clang-format off: a paragraph an option */
static const lk_option options[] = {
    {.name = "model",
     .type = LK_OPTION_STRING,
     AT(train.model),
     .default_text = "lenet",
     .value = "NAME",
     .help = "network to train"},
    {.name = "data",
     .type = LK_OPTION_STRING,
     AT(train.data),
     .default_text = "auto",
     .value = "NAME",
     .help = "data set: fashion-mnist, mnist, synthetic, or auto (fashion-mnist, else synthetic)"},
    {.name = "data-dir",
     .type = LK_OPTION_STRING,
     AT(train.data_dir),
     .value = "DIR",
     .help = "where NAME/FILE or NAME/FILE.gz is looked for before $LOCKSTEP_DATA and ~/.cache/lockstep"},
    {.name = "devices",
     .type = LK_OPTION_STRING,
     AT(devices),
     .default_text = "1,2,3",
     .value = "SPECS",
     .help = "sets of devices to compare, joined by commas; a number is that many CPU devices"},
    {.name = "steps",
     .type = LK_OPTION_INT64,
     AT(steps),
     .default_text = "20",
     .minimum = 1,
     .maximum = 1000000,
     .value = "N",
     .help = "steps to train on each"},
    {.name = "shards",
     .type = LK_OPTION_INT64,
     AT(train.shards),
     .default_text = "0",
     .minimum = 1,
     .maximum = 65536,
     .value = "V",
     .help = "logical shards a batch is cut into (unset: what the largest set of devices needs)"},
    {.name = "batch-size",
     .type = LK_OPTION_INT64,
     AT(train.batch_size),
     .default_text = "0",
     .minimum = 1,
     .maximum = 1 << 24,
     .value = "N",
     .help = "samples a step (unset: the model's recipe)"},
    {.name = "base-lr",
     .type = LK_OPTION_DOUBLE,
     AT(train.base_lr),
     .default_text = "0",
     .least = 1e-12,
     .greatest = 1e6,
     .value = "RATE",
     .help = "learning rate (unset: the model's recipe)"},
    {.name = "seed",
     .type = LK_OPTION_INT64,
     AT(train.seed),
     .default_text = "0",
     .minimum = 0,
     .maximum = INT64_MAX,
     .value = "N",
     .help = "seed of initial weights and of the samples' order"},
    {.name = "limit-train",
     .type = LK_OPTION_INT64,
     AT(train.limit_train),
     .default_text = "-1",
     .minimum = 1,
     .maximum = INT64_MAX,
     .value = "N",
     .help = "train on the file's first N samples (unset: all)"},
};
/* clang-format on */

enum { MAX_SPECS = 64 };

/* Cuts `text` at its commas, in place. A bare number means CPU devices: written out as "NxCPU", 16 bytes each. Gives
 * how many specs there are, of which the first MAX_SPECS are stored. */
static int split_specs(char *text, const char **specs, char (*numbers)[16])
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
        if (digits > 0 && digits < 8 && item[digits] == '\0') {
            snprintf(numbers[count], sizeof numbers[count], "%sxcpu", item);
            specs[count] = numbers[count];
        }
    }
    return count;
}

static void print_run(void *user, const lk_verify_run *run)
{
    bool *noted = user;
    if (run->plan->fell_back && !*noted)
        cli_note_fallback();
    *noted = true;
    printf("%-8s %s\n", run->devices, run->digest);
    fflush(stdout);
}

static int report(const verify_config *config, const lk_verify_opts *opts, const lk_verify_result *result)
{
    if (result->identical) {
        printf("identical after %lld steps with %lld shards\n", (long long)config->steps, (long long)result->shards);
        return 0;
    }
    printf("different: after step %lld %s on %s (replica %d) is not what it is on %s\n", (long long)result->step,
           result->tensor, opts->specs[result->run], result->replica, opts->specs[0]);
    return 1;
}

static int verify(verify_config *config, char *list)
{
    const char *specs[MAX_SPECS];
    char numbers[MAX_SPECS][16];
    bool noted = false;
    lk_verify_opts opts = {.specs = specs, .steps = config->steps, .run_done = print_run, .user = &noted};
    opts.count = split_specs(list, specs, numbers);
    if (opts.count > MAX_SPECS)
        return cli_usage_error("--devices names %d sets of devices: at most %d can be compared", opts.count, MAX_SPECS);
    lk_verify_result result;
    if (lk_verify(&config->train, &opts, &result) != LK_OK)
        return cli_fail();
    return report(config, &opts, &result);
}

static int run(int argc, char **argv)
{
    verify_config config = {0};
    cli_progress progress = {0};
    config.train.limit_val = 0;
    config.train.workers = 1;
    if (cli_parse(&cmd_verify, argc, argv, &config, NULL) != LK_OK)
        return cli_fail();
    lk_log_set(cli_print_log, &progress, LK_LOG_INFO);
    char *list = strdup(config.devices);
    if (!list) {
        fputs("lockstep: out of memory\n", stderr);
        return 1;
    }
    int status = verify(&config, list);
    free(list);
    return status;
}

const cli_command cmd_verify = {
    .name = "verify",
    .summary = "Train on several sets of devices and compare the results bit for bit",
    .details = "Prints the digest of each; exit status 0 where they are identical, else 1 with the first step and\n"
               "tensor that differ.\n",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run,
};
