#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/image.h"
#include "lockstep/predict.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_INPUT = 256 << 20 };

typedef struct predict_config {
    int64_t top;
    const char *device, *pjrt;
    bool best, json;
} predict_config;

#define AT(field) .offset = offsetof(predict_config, field)

/* clang-format off: one paragraph per option */
static const lk_option options[] = {
    {.name = "top",
     .type = LK_OPTION_INT64,
     AT(top),
     .default_text = "3",
     .minimum = 1,
     .maximum = INT64_MAX,
     .value = "K",
     .help = "number of classes to name, the likeliest first"},
    {.name = "best", .type = LK_OPTION_FLAG, AT(best), .help = "use the best checkpoint instead of the last one"},
    {.name = "device",
     .type = LK_OPTION_STRING,
     AT(device),
     .default_text = "cpu",
     .value = "NAME",
     .help = "device that computes: cpu, cuda:0 or pjrt:0"},
    {.name = "pjrt",
     .type = LK_OPTION_STRING,
     AT(pjrt),
     .value = "FILE",
     .help = "PJRT plug-in that has the devices pjrt:0, … (default: $PJRT_PLUGIN_LIBRARY_PATH, else "
             "$TPU_LIBRARY_PATH)"},
    {.name = "json", .type = LK_OPTION_FLAG, AT(json), .help = "print one JSON object per picture"},
};
/* clang-format on */

/* --- one picture -------------------------------------------------------------------------------------------------- */

static lk_status predict_input(lk_predictor *predictor, float *probabilities)
{
    unsigned char *bytes = NULL;
    size_t size = 0, capacity = 0;
    for (size_t got = 1; got > 0; size += got) {
        if (size == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            unsigned char *grown = capacity <= MOST_INPUT ? realloc(bytes, capacity) : NULL;
            if (!grown) {
                free(bytes);
                if (capacity <= MOST_INPUT)
                    return cli_out_of_memory();
                fprintf(stderr, "lockstep: standard input has more than %d bytes\n", MOST_INPUT);
                return LK_ERR_FORMAT;
            }
            bytes = grown;
        }
        got = fread(bytes + size, 1, capacity - size, stdin);
    }
    lk_status status = LK_ERR_IO;
    if (ferror(stdin))
        fprintf(stderr, "lockstep: standard input cannot be read: %s\n", strerror(errno));
    else
        status = lk_predict_bytes(predictor, bytes, size, "standard input", probabilities);
    free(bytes);
    return status;
}

static lk_status predict_print_line(const lk_predictor *predictor, const char *name, const float *probabilities,
                                    int64_t k)
{
    int64_t classes = lk_predictor_input(predictor).classes, *top = calloc((size_t)classes, sizeof *top);
    if (!top)
        return cli_out_of_memory();
    lk_top_classes(probabilities, classes, k, top);
    cli_print_clean(name, stdout);
    putchar(':');
    for (int64_t i = 0; i < k; i++) {
        const char *class_name = lk_predictor_class_name(predictor, top[i]);
        fputs(i ? ", " : " ", stdout);
        if (class_name)
            cli_print_clean(class_name, stdout);
        else
            printf("class %" PRId64, top[i]);
        printf(" %.4f", (double)probabilities[top[i]]);
    }
    putchar('\n');
    free(top);
    return LK_OK;
}

/* Returns the exit status. Prints errors, so that the caller can go on with the other pictures. */
static int predict_one(lk_predictor *predictor, const predict_config *config, const char *name, float *probabilities)
{
    int64_t classes = lk_predictor_input(predictor).classes, k = config->top < classes ? config->top : classes;
    lk_status status = strcmp(name, "-") == 0 ? predict_input(predictor, probabilities)
                                              : lk_predict_file(predictor, name, probabilities);
    if (status == LK_OK && config->json)
        status = cli_print_json(lk_prediction_json(predictor, name, probabilities, k), stdout);
    else if (status == LK_OK)
        status = predict_print_line(predictor, name, probabilities, k);
    if (status == LK_OK)
        return 0;
    if (lk_error_status() != LK_OK)
        cli_fail();
    lk_error_clear();
    return 1;
}

/* --- a folder ----------------------------------------------------------------------------------------------------- */

static bool predict_is_folder(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 && S_ISDIR(there.st_mode);
}

static int predict_is_picture(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && lk_image_is_named(entry->d_name);
}

static int predict_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Classifies the pictures directly in a folder. Returns the exit status, with errors printed. */
static int predict_folder(lk_predictor *predictor, const predict_config *config, const char *folder,
                          float *probabilities)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, predict_is_picture, predict_by_name), pictures = 0, status = 0;
    if (count < 0)
        return cli_error("%s: cannot be read: %s", folder, strerror(errno));
    const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        if ((size_t)snprintf(path, sizeof path, "%s%s%s", folder, slash, entries[i]->d_name) >= sizeof path) {
            status = cli_error("%s/%s: the path is too long", folder, entries[i]->d_name);
        } else if (!predict_is_folder(path)) {
            status |= predict_one(predictor, config, path, probabilities);
            pictures++;
        }
        free(entries[i]);
    }
    free((void *)entries);
    if (pictures == 0 && status == 0)
        return cli_error("%s: there are no pictures (.png, .jpg, .jpeg, .pgm, .ppm, .pnm) directly in this folder",
                         folder);
    return status;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static lk_predictor *predict_open(const char *run, const predict_config *config)
{
    lk_checkpoint *checkpoint;
    lk_predictor *predictor = NULL;
    if (lk_checkpoint_open_model(run, config->best ? LK_CHECKPOINT_BEST : LK_CHECKPOINT_LAST, &checkpoint) == LK_OK) {
        predictor = lk_predictor_new(
            checkpoint, &(lk_predictor_opts){.devices = config->device, .batch_size = 1, .pjrt = config->pjrt});
        lk_checkpoint_release(checkpoint);
    }
    return predictor;
}

static int predict_run(int argc, char **argv)
{
    predict_config config;
    int count, devices;
    if (cli_parse(&cmd_predict, argc, argv, &config, &count) != LK_OK)
        return cli_fail();
    if (count < 2)
        return cli_usage_error("predict: a checkpoint folder and at least one picture are needed: lockstep predict RUN "
                               "picture.png");
    if (lk_devices_count(config.device, &devices) != LK_OK)
        return cli_fail();
    if (devices != 1)
        return cli_usage_error("--device %s: must name one device", config.device);
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    lk_predictor *predictor = predict_open(argv[0], &config);
    if (!predictor)
        return cli_fail();
    float *probabilities = calloc((size_t)lk_predictor_input(predictor).classes, sizeof *probabilities);
    int status = probabilities ? 0 : 1;
    if (!probabilities)
        cli_out_of_memory();
    for (int i = 1; probabilities && i < count; i++)
        status |= strcmp(argv[i], "-") != 0 && predict_is_folder(argv[i])
                      ? predict_folder(predictor, &config, argv[i], probabilities)
                      : predict_one(predictor, &config, argv[i], probabilities);
    free(probabilities);
    lk_predictor_release(predictor);
    return status;
}

const cli_command cmd_predict = {
    .name = "predict",
    .summary = "Classify pictures with a trained network",
    .arguments = "RUN PICTURE…",
    .details =
        "RUN is a checkpoint folder (`lockstep train --checkpoint-dir`), or one of the checkpoints in it. A PICTURE\n"
        "is a PNG, JPEG, PGM or PPM file, - for standard input, or a folder: all pictures directly in it, by name.\n"
        "Pictures are resized, and made gray or color, as the network needs them.\n"
        "\n"
        "Prints a line per picture: the likeliest classes, each with its probability. --json prints an object per\n"
        "line instead:\n"
        "\n"
        "  {\"file\":\"shoe.png\",\"predictions\":[{\"class\":9,\"name\":\"ankle boot\",\"probability\":0.93}]}\n"
        "\n"
        "A picture that cannot be read is reported on standard error. The others are still classified, and the exit\n"
        "status is 1.\n",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = predict_run,
};
