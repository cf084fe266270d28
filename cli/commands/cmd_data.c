#include "cli/cli.h"
#include "cli/commands/data_command.h"
#include "cli/interrupts.h"
#include "cli/text/data_progress.h"
#include "cli/text/progress.h"

#include "lockstep/data.h"

#include <stdio.h>
#include <string.h>

#define AT(field) .offset = offsetof(data_config, field)

const char *const cli_normalize_modes[] = {
    [LK_NORMALIZE_NONE] = "none",
    [LK_NORMALIZE_CENTER] = "center",
    [LK_NORMALIZE_STANDARD] = "standard",
    NULL,
};

/* clang-format off: one paragraph per option */
static const lk_option own_options[] = {
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "FILE",
     .help = "with preview: PNG file to write (default: draw in the terminal)"},
    {.name = "samples",
     .type = LK_OPTION_INT64,
     AT(samples),
     .minimum = 1,
     .maximum = 4096,
     .value = "N",
     .help = "with preview: number of samples to show (default: 16, or all if there are fewer)"},
    {.name = "epoch",
     .type = LK_OPTION_INT64,
     AT(epoch),
     .default_text = "1",
     .minimum = 1,
     .maximum = UINT32_MAX,
     .value = "N",
     .help = "with preview: epoch whose first samples are shown"},
    {.name = "mirror",
     .type = LK_OPTION_STRING,
     AT(mirror),
     .environment = "LOCKSTEP_MIRROR",
     .value = "URL",
     .help = "try URL/NAME/FILE.gz first when downloading; such files are checked like all others (default: none)"},
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };
#define DEFAULT_DATA "auto"

/* Adds the options of train that select the data and say how to prepare them. */
static size_t data_make_options(lk_option *table)
{
    static const char *const taken[] = {"data",        "data-dir",     "resize",   "channels",   "val-split",
                                        "image-shape", "label-column", "skip-bad", "data-cache", "limit-train",
                                        "augment",     "normalize",    "seed",     "workers"};
    size_t count = 0;
    for (; count < OWN_OPTION_COUNT; count++)
        table[count] = own_options[count];
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        for (int j = 0; j < LK_TRAIN_OPTION_COUNT; j++)
            if (strcmp(lk_train_options[j].name, taken[i]) == 0)
                table[count++] = lk_train_options[j];
    table[count - 1].help = "least number of threads that decode pictures; with 0 the main thread does it";
    for (size_t i = OWN_OPTION_COUNT; i < count; i++)
        table[i].group = NULL; /* they are too few for headings */
    table[OWN_OPTION_COUNT].default_text = DEFAULT_DATA;
    return count;
}

/* --- shared by the parts ------------------------------------------------------------------------------------------ */

lk_status cli_data_open(const data_config *config, const char *name, lk_split split, lk_dataset **dataset)
{
    lk_dataset_opts opts = lk_train_dataset_opts(&config->train);
    opts.limit = split == LK_SPLIT_TRAIN && config->train.data.limit_train > 0 ? config->train.data.limit_train : 0;
    opts.mirror = config->mirror;
    opts.verify = config->verify;
    opts.progress = cli_show_data_progress;
    lk_status status = lk_dataset_open(name, split, &opts, dataset);
    if (status != LK_ERR_INTERRUPTED)
        cli_stop_asking();
    return status;
}

lk_status cli_data_open_train(data_config *config, lk_dataset **dataset)
{
    bool automatic = strcmp(config->train.data.name, DEFAULT_DATA) == 0;
    if (automatic)
        config->train.data.name = "fashion-mnist";
    lk_status status = cli_data_open(config, config->train.data.name, LK_SPLIT_TRAIN, dataset);
    if (!automatic || status != LK_ERR_NOT_FOUND)
        return status;
    cli_print_log(NULL, LK_LOG_WARNING, lk_error_message());
    lk_error_clear();
    fputs("note: fashion-mnist is neither here nor could it be fetched; showing synthetic images instead\n", stderr);
    config->train.data.name = "synthetic";
    return cli_data_open(config, config->train.data.name, LK_SPLIT_TRAIN, dataset);
}

void cli_data_print_shape(const lk_dataset *dataset)
{
    printf("%lldx%lldx%lld", (long long)lk_dataset_channels(dataset), (long long)lk_dataset_height(dataset),
           (long long)lk_dataset_width(dataset));
}

const char *cli_data_class(const lk_dataset *dataset, int64_t label, char text[32])
{
    const char *name = lk_dataset_class_name(dataset, label);
    if (name)
        return name;
    snprintf(text, 32, "class %lld", (long long)label);
    return text;
}

/* --- list --------------------------------------------------------------------------------------------------------- */

static lk_status data_list_one(const char *name, const data_config *config)
{
    lk_dataset_opts opts = {.dir = config->train.data.dir, .offline = true};
    lk_dataset *train, *test = NULL;
    lk_status status = lk_dataset_open(name, LK_SPLIT_TRAIN, &opts, &train);
    if (status == LK_OK)
        status = lk_dataset_open(name, LK_SPLIT_TEST, &opts, &test);
    printf("%-14s ", name);
    if (status == LK_OK) {
        printf("%lld + %lld images of ", (long long)lk_dataset_count(train), (long long)lk_dataset_count(test));
        cli_data_print_shape(train);
        printf(", %lld classes; ", (long long)lk_dataset_classes(train));
        cli_print_clean(lk_dataset_source(train), stdout);
    } else if (status == LK_ERR_NOT_FOUND) {
        fputs("not found", stdout);
        status = LK_OK;
    } else {
        cli_print_clean(lk_error_message(), stdout);
    }
    putchar('\n');
    lk_error_clear();
    lk_dataset_release(train);
    lk_dataset_release(test);
    return status;
}

static int data_list(data_config *config)
{
    int status = 0;
    const char *name;
    for (size_t i = 0; (name = lk_dataset_known_name(i)); i++)
        if (data_list_one(name, config) != LK_OK)
            status = 1;
    return status;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

typedef struct part {
    const char *name;
    bool takes_name; /* may be followed by the name of a data set */
    int (*run)(data_config *config);
} part;

static const part parts[] = {
    {"list", false, data_list},
    {"fetch", true, cli_data_fetch},
    {"info", true, cli_data_info},
    {"preview", true, cli_data_preview},
};

/* Returns the first option given that only a preview uses, or NULL. */
static const char *data_needs_preview(const data_config *config)
{
    if (config->out)
        return "out";
    if (config->samples)
        return "samples";
    if (config->epoch != 1)
        return "epoch";
    if (config->train.data.normalize != LK_NORMALIZE_NONE)
        return "normalize";
    if (config->train.data.augment)
        return "augment";
    return config->train.seed != 0 ? "seed" : NULL;
}

static int data_run(int argc, char **argv)
{
    data_config config = {0};
    lk_option options[CLI_MAX_OPTIONS];
    size_t n = data_make_options(options);
    int count;
    if (lk_options_defaults(options, n, &config) != LK_OK ||
        lk_options_parse(options, n, argc, argv, &config, &count) != LK_OK)
        return cli_fail();
    const part *wanted = count ? NULL : &parts[0];
    for (size_t i = 0; count && i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(argv[0], parts[i].name) == 0)
            wanted = &parts[i];
    if (!wanted)
        return cli_usage_error("unknown argument '%s': expected list, fetch, info or preview, or nothing for the list",
                               argv[0]);
    if (count > 2 || (count == 2 && !wanted->takes_name))
        return cli_usage_error("unexpected argument '%s'", argv[count > 2 ? 2 : 1]);
    if (count == 2 && strcmp(config.train.data.name, DEFAULT_DATA) != 0)
        return cli_usage_error("both --data %s and '%s' name a data set", config.train.data.name, argv[1]);
    if (count == 2)
        config.train.data.name = argv[1];
    const char *option = wanted->run == cli_data_preview ? NULL : data_needs_preview(&config);
    if (option)
        return cli_usage_error("--%s belongs to 'lockstep data preview'", option);
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    cli_catch_interrupts(NULL);
    return wanted->run(&config);
}

const cli_command cmd_data = {
    .name = "data",
    .summary = "List, fetch, describe and show data sets",
    .arguments = "[list | fetch NAME | info [NAME] | preview [NAME]]",
    .details =
        "list prints the data sets that are known by name, and where they were found. Only --data-dir has an effect,\n"
        "and nothing is downloaded.\n"
        "\n"
        "fetch downloads a data set into the cache, unless it is there with the right checksums. It goes on where an\n"
        "interrupted download stopped. Only --data-dir and --mirror have an effect.\n"
        "\n"
        "info describes a data set, given by name or path: samples, shapes, mean and deviation of each channel,\n"
        "samples of each class, and images that occur twice.\n"
        "\n"
        "preview shows the first samples of an epoch as training with the same options sees them, under the names of\n"
        "their classes. With --augment, each is followed by its augmented image and its number in the data set.\n",
    .make_options = data_make_options,
    .config_size = sizeof(data_config),
    .run = data_run,
};
