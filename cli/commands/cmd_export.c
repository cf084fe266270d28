#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/export.h"
#include "lockstep/log.h"

#include <inttypes.h>
#include <string.h>

typedef struct export_config {
    int format; /* position in `formats` */
    int names;  /* lk_export_names */
    const char *out, *signature;
    bool best, external_data, channels_last;
} export_config;

enum { BY_NAME };

/* After BY_NAME, in the order of lk_export_format. */
static const char *const formats[] = {"by-name", "safetensors", "onnx", "savedmodel", "c", NULL};

static const char *const names[] = {
    [LK_EXPORT_NAMES_OWN] = "own", [LK_EXPORT_NAMES_TORCH] = "pytorch", [LK_EXPORT_NAMES_BOOK] = "book", NULL};

/* clang-format off */
#define AT(field) offsetof(export_config, field)
static const lk_option options[] = {
    {.name = "format", .type = LK_OPTION_CHOICE, .offset = AT(format), .default_text = "by-name", .choices = formats,
     .value = "FORMAT", .help = "format to write; by-name goes by the ending of --out: .safetensors, .onnx or .c"},
    {.name = "out", .type = LK_OPTION_STRING, .offset = AT(out), .value = "FILE",
     .help = "file to write, or, for savedmodel, a new folder (required)"},
    {.name = "best", .type = LK_OPTION_FLAG, .offset = AT(best), .help = "export the best checkpoint instead of the last one"},
    {.name = "names", .type = LK_OPTION_CHOICE, .offset = AT(names), .default_text = "own", .choices = names,
     .value = "WHOSE",
     .help = "with --format safetensors: names of the tensors; pytorch has those of nn.Sequential, which "
             "load_state_dict takes, book those of resnet18 in Dive into Deep Learning"},
    {.name = "external-data", .type = LK_OPTION_FLAG, .offset = AT(external_data),
     .help = "with --format onnx: write the weights to FILE.data next to FILE, as is always done from 2 GB on"},
    {.name = "channels-last", .type = LK_OPTION_FLAG, .offset = AT(channels_last),
     .help = "with --format savedmodel: the network takes images as [N, H, W, C], as those of Keras do"},
    {.name = "signature", .type = LK_OPTION_STRING, .offset = AT(signature), .value = "NAME",
     .help = "with --format savedmodel: name of the signature (default: serving_default)"},
};
/* clang-format on */
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

static bool export_has_ending(const char *text, const char *ending)
{
    size_t length = strlen(text), size = strlen(ending);
    return length > size && strcmp(text + length - size, ending) == 0;
}

/* Returns LK_EXPORT_FORMAT_COUNT if neither --format nor the ending of --out says which. */
static lk_export_format export_format_of(const export_config *config)
{
    if (config->format != BY_NAME)
        return (lk_export_format)(config->format - 1);
    if (export_has_ending(config->out, ".safetensors"))
        return LK_EXPORT_SAFETENSORS;
    if (export_has_ending(config->out, ".onnx"))
        return LK_EXPORT_ONNX;
    return export_has_ending(config->out, ".c") ? LK_EXPORT_C : LK_EXPORT_FORMAT_COUNT;
}

static void export_print_result(const lk_checkpoint *checkpoint, const export_config *config)
{
    const lk_checkpoint_info *info = lk_checkpoint_get_info(checkpoint);
    int64_t elements = 0;
    lk_shape shape;
    for (int i = 0; lk_checkpoint_variable(checkpoint, i, NULL, &shape); i++)
        elements += lk_shape_count(shape);
    cli_print_clean(config->out, stdout);
    printf(": ");
    cli_print_clean(info->model, stdout);
    printf(" for images of %" PRId64 "x%" PRId64 "x%" PRId64 " in %" PRId64 " class%s, %" PRId64
           " values, after %" PRId64 " step%s\n",
           info->channels, info->height, info->width, info->classes, info->classes == 1 ? "" : "es", elements,
           info->steps, info->steps == 1 ? "" : "s");
}

static lk_status export_folder(const char *folder, const export_config *config, lk_export_format format)
{
    const lk_export_opts opts = {.names = (lk_export_names)config->names,
                                 .external_data = config->external_data,
                                 .signature = config->signature,
                                 .channels_last = config->channels_last};
    lk_checkpoint *checkpoint;
    lk_status status =
        lk_checkpoint_open_model(folder, config->best ? LK_CHECKPOINT_BEST : LK_CHECKPOINT_LAST, &checkpoint);
    if (status != LK_OK)
        return status;
    status = lk_export_checkpoint(checkpoint, format, config->out, &opts);
    if (status == LK_OK)
        export_print_result(checkpoint, config);
    lk_checkpoint_release(checkpoint);
    return status;
}

static int export_run(int argc, char **argv)
{
    export_config config;
    int count;
    if (cli_parse(&cmd_export, argc, argv, &config, &count) != LK_OK)
        return cli_fail();
    if (count == 0)
        return cli_usage_error(
            "export: a checkpoint folder is missing: name one that `lockstep train --checkpoint-dir` has written");
    if (count > 1)
        return cli_usage_error("unexpected argument '%s': one run is exported", argv[1]);
    if (!config.out || !*config.out)
        return cli_usage_error("--out is missing: say where to write, as --out net.onnx");
    if (strcmp(config.out, "-") == 0)
        return cli_usage_error("--out -: an export is a file that takes its place when it is whole; expected a path");
    lk_export_format format = export_format_of(&config);
    if (format == LK_EXPORT_FORMAT_COUNT)
        return cli_usage_error(
            "--out %s: its ending does not say what to write; expected .safetensors, .onnx or .c, or "
            "a --format",
            config.out);
    if (config.external_data && format != LK_EXPORT_ONNX)
        return cli_usage_error("--external-data: must be with --format onnx");
    if ((config.channels_last || config.signature) && format != LK_EXPORT_SAVEDMODEL)
        return cli_usage_error("--%s: must be with --format savedmodel",
                               config.channels_last ? "channels-last" : "signature");
    if (config.names != LK_EXPORT_NAMES_OWN && format != LK_EXPORT_SAFETENSORS)
        return cli_usage_error("--names: must be with --format safetensors");
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    return export_folder(argv[0], &config, format) == LK_OK ? 0 : cli_fail();
}

const cli_command cmd_export = {
    .name = "export",
    .summary = "Write a trained network for other programs",
    .arguments = "RUN",
    .details =
        "RUN is a checkpoint folder (`lockstep train --checkpoint-dir`), whose last checkpoint is exported, or one of\n"
        "the checkpoints in it.\n"
        "\n"
        "  safetensors  parameters and buffers, under their names here or in PyTorch\n"
        "  onnx         a file for onnxruntime and other runtimes: opset 13, any batch size\n"
        "  savedmodel   a folder for TensorFlow and TensorFlow Serving: one signature, any batch size\n"
        "  c            FILE.c and FILE.h, which need a C11 compiler and libm; above a million parameters and\n"
        "               buffers also FILE.weights, which the program reads\n"
        "\n"
        "The last three take images as float32 [N, C, H, W] from 0 to 1 (in C one image), prepare them as the run\n"
        "did, and return logits and probabilities. See docs/export.md.\n",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = export_run,
};
