#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/data_progress.h"
#include "cli/text/evaluation_text.h"
#include "cli/text/progress.h"

#include "lockstep/build.h"
#include "lockstep/image.h"
#include "lockstep/predict.h"
#include "lockstep/record.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct evaluate_config {
    lk_train_config train; /* first, because the offsets of its options count from it */
    bool best;
    int split; /* lk_split */
    int64_t limit, batch_size, mistakes;
    const char *out;
} evaluate_config;

#define AT(field) .offset = offsetof(evaluate_config, field)

static const char *const splits[] = {[LK_SPLIT_TRAIN] = "train", [LK_SPLIT_TEST] = "test", NULL};

/* clang-format off: one paragraph per option */
static const lk_option own_options[] = {
    {.name = "best", .type = LK_OPTION_FLAG, AT(best), .help = "evaluate the best checkpoint instead of the last one"},
    {.name = "split",
     .type = LK_OPTION_CHOICE,
     AT(split),
     .default_text = "test",
     .choices = splits,
     .value = "WHICH",
     .help = "part of the data to evaluate; train is all of it if nothing is set apart for tests"},
    {.name = "limit",
     .type = LK_OPTION_INT64,
     AT(limit),
     .default_text = "-1",
     .minimum = 1,
     .maximum = INT64_MAX,
     .value = "N",
     .help = "evaluate only the first N samples (default: all)"},
    {.name = "batch-size",
     .type = LK_OPTION_INT64,
     AT(batch_size),
     .default_text = "64",
     .minimum = 1,
     .maximum = 1 << 20,
     .value = "N",
     .help = "images that a device computes at a time"},
    {.name = "mistakes",
     .type = LK_OPTION_INT64,
     AT(mistakes),
     .default_text = "36",
     .minimum = 0,
     .maximum = 1024,
     .value = "N",
     .help = "number of the worst mistakes to list in JSON and show in mistakes.png"},
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "DIR",
     .help = "folder for confusion.svg, confusion.png, mistakes.png and evaluation.json (default: none are written)"},
};
/* clang-format on */

/* Options taken from `lockstep train`. Those in `run_options` default to the run's values; val-split does so only if
 * the data set is the run's too, image-shape and label-column only if it is CSV. */
static const char *const run_options[] = {"data", "val-split", "image-shape", "label-column", "skip-bad"};
static const char *const other_options[] = {"data-dir", "data-cache", "workers", "devices", "pjrt", "json"};

enum {
    OWN_COUNT = sizeof own_options / sizeof *own_options,
    RUN_COUNT = sizeof run_options / sizeof *run_options,
    OTHER_COUNT = sizeof other_options / sizeof *other_options
};

static size_t evaluate_add_option(const char *name, lk_option *table)
{
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        if (strcmp(lk_train_options[i].name, name) != 0)
            continue;
        *table = lk_train_options[i];
        table->group = NULL; /* they are too few for headings */
        if (strcmp(name, "data") == 0) {
            table->default_text = NULL;
            table->help = "data set to evaluate, by name or path as for `lockstep train` (default: the run's)";
        } else if (strcmp(name, "val-split") == 0) {
            table->default_text = NULL;
            table->help = "evaluate this share of each class of the training set; 0: the data's own validation set "
                          "(default: the run's, if --data is not given)";
        } else if (strcmp(name, "image-shape") == 0) {
            table->help = "with CSV data: shape of the pixels in a row (default: the run's, else as the header says)";
        } else if (strcmp(name, "label-column") == 0) {
            table->help = "with CSV data: column that holds the label (default: the run's, else label or class, else "
                          "the first)";
        } else if (strcmp(name, "skip-bad") == 0) {
            table->help = "leave out pictures and rows of CSV that cannot be used, and report them; with --no-skip-bad "
                          "they are an error (default: the run's)";
        } else if (strcmp(name, "workers") == 0) {
            table->help = "least number of threads that decode pictures; with 0 the main thread does it";
        } else if (strcmp(name, "devices") == 0) {
            table->help = "devices that compute: 2xcpu, cpu:0,cpu:1, or a number (default: all cores)";
        } else if (strcmp(name, "json") == 0) {
            table->help = "print one JSON object on standard output instead of tables";
        }
        return 1;
    }
    return 0;
}

static size_t evaluate_make_options(lk_option *table)
{
    size_t count = 0;
    for (int i = 0; i < RUN_COUNT; i++)
        count += evaluate_add_option(run_options[i], table + count);
    for (int i = 0; i < OTHER_COUNT; i++)
        count += evaluate_add_option(other_options[i], table + count);
    memcpy(table + count, own_options, sizeof own_options);
    return count + OWN_COUNT;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static lk_status evaluate_path_in(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX)
        return LK_OK;
    fprintf(stderr, "lockstep: --out: the path is too long\n");
    return LK_ERR_ARGUMENT;
}

static lk_status evaluate_write_json(const cli_evaluation *e, const char *out)
{
    char path[PATH_MAX];
    lk_status status = evaluate_path_in(out, "evaluation.json", path);
    return status == LK_OK ? lk_evaluation_write(&e->found, e->dataset, e->names, path) : status;
}

static lk_status evaluate_draw_files(const cli_evaluation *e, const char *out)
{
    static const char *const matrices[] = {"confusion.svg", "confusion.png"};
    char path[PATH_MAX], title[256];
    snprintf(title, sizeof title, "%.80s on %.80s: accuracy %.4f", e->info->model, lk_dataset_name(e->dataset),
             lk_mean_value(e->found.accuracy));
    bool has_png = lk_build_has("libcairo");
    lk_status status = LK_OK;
    for (int i = 0; i < 2 && status == LK_OK; i++) {
        status = evaluate_path_in(out, matrices[i], path);
        if (status == LK_OK && (!e->found.confusion || (i == 1 && !has_png)))
            remove(path); /* an earlier evaluation may have left one */
        else if (status == LK_OK)
            status = lk_evaluation_draw(&e->found, e->names, title, path);
    }
    if (status == LK_OK && !e->found.confusion)
        fprintf(stderr, "lockstep: no confusion matrix is written: there are more than %d classes\n",
                LK_CONFUSION_MOST);
    bool has_sheet = has_png && e->found.n_mistakes > 0 &&
                     (lk_dataset_channels(e->dataset) == 1 || lk_dataset_channels(e->dataset) == 3);
    if (status == LK_OK)
        status = evaluate_path_in(out, "mistakes.png", path);
    if (status == LK_OK && !has_sheet)
        remove(path);
    else if (status == LK_OK)
        status = lk_evaluation_sheet(&e->found, e->dataset, e->names, path);
    if (status == LK_OK && !has_png)
        fputs("lockstep: this build has no libcairo: confusion.png and mistakes.png are not written\n", stderr);
    return status;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* Opens the data set, with images resized to the network's input size. IDX files may have images of a size that none
 * are resized to; such images must have the network's size already. */
static lk_status evaluate_open_dataset(const evaluate_config *config, cli_evaluation *e)
{
    lk_dataset_opts opts = lk_train_dataset_opts(&config->train);
    char size[64];
    int64_t height = e->info->height, width = e->info->width;
    snprintf(size, sizeof size, "%" PRId64 "x%" PRId64, height, width);
    if (height <= LK_IMAGE_MAX_SIDE && width <= LK_IMAGE_MAX_SIDE && height * width <= LK_IMAGE_MAX_PIXELS)
        opts.resize = size;
    opts.channels = e->info->channels == 1 || e->info->channels == 3 ? e->info->channels : 0;
    opts.limit = config->limit > 0 ? config->limit : 0;
    opts.progress = cli_show_data_progress;
    lk_status status = lk_dataset_open(config->train.data.name, (lk_split)config->split, &opts, &e->dataset);
    if (status != LK_ERR_INTERRUPTED)
        cli_stop_asking();
    return status;
}

static lk_status evaluate_open_predictor(const lk_checkpoint *checkpoint, const evaluate_config *config,
                                         cli_evaluation *e)
{
    char devices[32];
    int cores = lk_device_available("cpu");
    lk_predictor_opts opts = {
        .devices = config->train.devices.spec, .batch_size = config->batch_size, .pjrt = config->train.devices.pjrt};
    snprintf(devices, sizeof devices, "%dxcpu", cores < LK_MAX_DEVICES ? cores : LK_MAX_DEVICES);
    if (!opts.devices || !*opts.devices)
        opts.devices = devices;
    e->predictor = lk_predictor_new(checkpoint, &opts);
    return e->predictor ? LK_OK : lk_error_status();
}

/* Sets the names of classes to the run's; a class without one gets its name in the data set. */
static lk_status evaluate_find_names(cli_evaluation *e)
{
    int64_t classes = lk_predictor_input(e->predictor).classes;
    e->names = calloc((size_t)classes + 1, sizeof *e->names);
    if (!e->names)
        return cli_out_of_memory();
    for (int64_t c = 0; c < classes; c++) {
        const char *name = lk_predictor_class_name(e->predictor, c);
        e->names[c] = name ? name : lk_dataset_class_name(e->dataset, c);
    }
    return LK_OK;
}

static lk_status evaluate_checkpoint(const lk_checkpoint *checkpoint, const evaluate_config *config, cli_evaluation *e)
{
    bool has_out = config->out && *config->out;
    lk_status status = has_out ? lk_make_directory(config->out) : LK_OK; /* first, so that an error shows early */
    e->split = splits[config->split];
    if (status == LK_OK)
        status = evaluate_open_predictor(checkpoint, config, e);
    if (status == LK_OK)
        status = evaluate_open_dataset(config, e);
    if (status == LK_OK)
        status = evaluate_find_names(e);
    if (status == LK_OK)
        status = lk_evaluate(e->predictor, e->dataset, config->mistakes, &e->found);
    if (status == LK_OK && config->train.records.json)
        status = cli_print_json(lk_evaluation_json(&e->found, e->dataset, e->names), stdout);
    else if (status == LK_OK)
        cli_print_evaluation(e);
    if (status == LK_OK && has_out)
        status = evaluate_write_json(e, config->out); /* first, because pictures may be too large to be drawn */
    if (status == LK_OK && has_out)
        status = evaluate_draw_files(e, config->out);
    lk_evaluation_free(&e->found);
    lk_predictor_release(e->predictor);
    lk_dataset_release(e->dataset);
    free(e->names);
    return status;
}

/* Sets `config` to the defaults, then to the settings of the run, then to the command line, of which `arguments` is a
 * copy. On entry `config` holds the command line alone, which tells whether it names other data. */
static lk_status evaluate_read_settings(const lk_checkpoint *checkpoint, int argc, char **arguments,
                                        evaluate_config *config)
{
    lk_option table[CLI_MAX_OPTIONS];
    size_t count = evaluate_make_options(table);
    int positionals;
    const char *other = config->train.data.name; /* training held out none of these data */
    lk_status status = lk_options_defaults(table, count, config);
    config->train.data.name = lk_checkpoint_get_info(checkpoint)->data;
    for (int i = 0; status == LK_OK && i < RUN_COUNT; i++) {
        const char *option = run_options[i], *value = lk_checkpoint_get_setting(checkpoint, option);
        const char *data = other ? other : config->train.data.name;
        bool is_for_csv = strcmp(option, "image-shape") == 0 || strcmp(option, "label-column") == 0;
        bool applies = strcmp(option, "val-split") == 0 ? !other : !is_for_csv || (data && lk_dataset_is_csv(data));
        if (value && *value && applies)
            status = lk_options_set(table, count, config, option, value);
    }
    return status != LK_OK ? status : lk_options_parse(table, count, argc, arguments, config, &positionals);
}

/* Returns the exit status. */
static int evaluate_folder(const char *path, int argc, char **arguments, evaluate_config *config)
{
    lk_checkpoint *checkpoint;
    bool has_data = config->train.data.name != NULL;
    int status = 0;
    if (lk_checkpoint_open_model(path, config->best ? LK_CHECKPOINT_BEST : LK_CHECKPOINT_LAST, &checkpoint) != LK_OK)
        return cli_fail();
    cli_evaluation e = {.info = lk_checkpoint_get_info(checkpoint)};
    if (evaluate_read_settings(checkpoint, argc, arguments, config) != LK_OK)
        status = cli_fail();
    else if (!config->train.data.name)
        status = cli_usage_error("evaluate: the run does not say which data it was trained on: name them with --data");
    else if (!has_data && !lk_dataset_is_known(config->train.data.name))
        status = cli_usage_error("the run's data, '%s', are not there: say where they are with --data",
                                 config->train.data.name);
    else if (evaluate_checkpoint(checkpoint, config, &e) != LK_OK)
        status = lk_error_status() != LK_OK ? cli_fail() : 1;
    lk_checkpoint_release(checkpoint);
    return status;
}

static int evaluate_run(int argc, char **argv)
{
    evaluate_config config = {0};
    lk_option table[CLI_MAX_OPTIONS];
    size_t count = evaluate_make_options(table);
    int positionals, status;
    char **arguments = calloc((size_t)argc + 1, sizeof *arguments); /* parsing reorders argv */
    if (!arguments)
        return cli_error("evaluate: out of memory");
    memcpy(arguments, argv, (size_t)argc * sizeof *argv);
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    cli_catch_interrupts(NULL);
    if (lk_options_defaults(table, count, &config) != LK_OK ||
        lk_options_parse(table, count, argc, argv, &config, &positionals) != LK_OK)
        status = cli_fail();
    else if (positionals != 1)
        status = cli_usage_error("evaluate: one checkpoint folder is needed: lockstep evaluate RUN");
    else
        status = evaluate_folder(argv[0], argc, arguments, &config);
    free(arguments);
    return status;
}

const cli_command cmd_evaluate = {
    .name = "evaluate",
    .summary = "Measure how good a trained network is, class by class",
    .arguments = "RUN",
    .details =
        "RUN is a checkpoint folder (`lockstep train --checkpoint-dir`), or one of the checkpoints in it. Every\n"
        "sample counts once; pictures of other sizes are resized to the network's.\n"
        "\n"
        "Prints accuracy and loss, precision, recall and F1 of each class, the confusion matrix if there are at\n"
        "most 20 classes, and the worst mistakes if the pictures are files. --out draws the matrix, and the\n"
        "worst mistakes as a contact sheet. --json prints everything as one object.\n",
    .make_options = evaluate_make_options,
    .config_size = sizeof(evaluate_config),
    .run = evaluate_run,
};
