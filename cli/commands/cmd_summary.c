/* Prints a model's layers, the operations of a sample, and the memory that training takes. */
#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/data_progress.h"
#include "cli/text/progress.h"

#include "lockstep/autograd.h"
#include "lockstep/data.h"
#include "lockstep/memory.h"
#include "lockstep/nn.h"
#include "lockstep/ops.h"
#include "lockstep/train.h"

#include <stdlib.h>
#include <string.h>

typedef struct summary_config {
    const char *model, *data, *data_dir, *resize;
    int64_t channels;               /* 0: those of the data, or 1 */
    int64_t height, width, classes; /* 0: those of the data, or 28x28 and 10 */
    int64_t batch_size, shards;
    const char *device_spec;
    int64_t devices; /* number of devices in device_spec */
    bool on_gpus;
    int optimizer; /* lk_optimizer_kind */
    int optimizer_state;
    double momentum;
    int batch_norm;
    bool memory, recompute;
    int64_t micro_batch;
    int dtype; /* enum lk_precision */
} summary_config;

static const char *const optimizers[] = {"sgd", "adam", "adamw", "lars", NULL};
static const char *const optimizer_states[] = {"mirrored", "sharded", NULL};
static const char *const batch_norms[] = {"group", "shard", "sync", NULL}; /* as lk_batch_norm_mode */
static const char *const precisions[] = {"f32", "bf16", NULL};

/* clang-format off */
#define AT(field) offsetof(summary_config, field)
static const lk_option options[] = {
    {.name = "model", .type = LK_OPTION_STRING, .offset = AT(model), .default_text = "lenet", .value = "NAME",
     .help = "network: a name that `lockstep models` lists, or a model file (name.lk)"},
    {.name = "data", .type = LK_OPTION_STRING, .offset = AT(data), .value = "NAME",
     .help = "take the images' size and the classes from this data set; nothing is downloaded (default: from the options "
             "below)"},
    {.name = "data-dir", .type = LK_OPTION_STRING, .offset = AT(data_dir), .value = "DIR",
     .help = "folder to search for data first (default: none)"},
    {.name = "resize", .type = LK_OPTION_STRING, .offset = AT(resize), .value = "HxW",
     .help = "with --data: resize its images to this height and width in pixels, as train does (default: keep their "
             "size)"},
    {.name = "channels", .type = LK_OPTION_INT64, .offset = AT(channels), .default_text = "0", .minimum = 1,
     .maximum = 65536, .value = "N",
     .help = "channels of an image; with --data 1 or 3, as for training (default: as the data are, else 1)"},
    {.name = "height", .type = LK_OPTION_INT64, .offset = AT(height), .default_text = "0", .minimum = 1,
     .maximum = 65536, .value = "N", .help = "without --data: height of an image, in pixels (default: 28)"},
    {.name = "width", .type = LK_OPTION_INT64, .offset = AT(width), .default_text = "0", .minimum = 1,
     .maximum = 65536, .value = "N", .help = "without --data: width of an image, in pixels (default: 28)"},
    {.name = "classes", .type = LK_OPTION_INT64, .offset = AT(classes), .default_text = "0", .minimum = 1,
     .maximum = 1000000, .value = "N", .help = "without --data: number of classes (default: 10)"},
    {.name = "batch-size", .type = LK_OPTION_INT64, .offset = AT(batch_size), .default_text = "256", .minimum = 1,
     .maximum = 1 << 24, .value = "N", .help = "samples in a step, over all devices together"},
    {.name = "shards", .type = LK_OPTION_INT64, .offset = AT(shards), .default_text = "0", .minimum = 1,
     .maximum = 65536, .value = "V", .help = "logical shards of a batch (default: as for training)"},
    {.name = "devices", .type = LK_OPTION_STRING, .offset = AT(device_spec), .default_text = "1", .value = "N",
     .help = "number of devices that share a batch; with --memory also GPUs, as for training: cuda, 2xcuda, cuda:1"},
    {.name = "optimizer", .type = LK_OPTION_CHOICE, .offset = AT(optimizer), .default_text = "sgd",
     .choices = optimizers, .value = "NAME", .help = "optimizer whose state is counted"},
    {.name = "optimizer-state", .type = LK_OPTION_CHOICE, .offset = AT(optimizer_state), .default_text = "mirrored",
     .choices = optimizer_states, .value = "PLACE",
     .help = "state that a device keeps of the optimizer: all of it (mirrored), or its share (sharded)"},
    {.name = "momentum", .type = LK_OPTION_DOUBLE, .offset = AT(momentum), .default_text = "0", .least = 0,
     .greatest = LK_BELOW_ONE, .value = "M", .help = "momentum of sgd and lars"},
    {.name = "bn", .type = LK_OPTION_CHOICE, .offset = AT(batch_norm), .default_text = "group",
     .choices = batch_norms, .value = "MODE",
     .help = "samples that batch-norm takes its statistics of: a shard, the whole batch (sync), or a group of at least 32 "
             "samples; a device holds the shards of a group at once"},
    {.name = "memory", .type = LK_OPTION_FLAG, .offset = AT(memory),
     .help = "run a shard's training step once, and print the size of its memory plan (with --bn shard); for GPUs, "
             "print the memory that training is estimated to need, and how much there is"},
    {.name = "recompute", .type = LK_OPTION_FLAG, .offset = AT(recompute),
     .help = "with --memory: count a step with activation recomputation"},
    {.name = "micro-batch", .type = LK_OPTION_INT64, .offset = AT(micro_batch), .default_text = "-1", .minimum = 0,
     .maximum = 1 << 24, .value = "N",
     .help = "with --memory: count a shard that runs in pieces of N samples; 0: as a whole (default: as for training)"},
    {.name = "dtype", .type = LK_OPTION_CHOICE, .offset = AT(dtype), .default_text = "f32", .choices = precisions,
     .value = "TYPE", .help = "with --memory: precision of layers and their outputs"},
};
/* clang-format on */
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Writes a text such as "1.23 M". */
static const char *summary_in_thousands(double value, char text[32])
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    int unit = 0;
    while (value >= 1000 && unit < 5) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 32, unit ? "%.2f%s" : "%.0f%s", value, units[unit]);
    return text;
}

static const char *summary_in_mebibytes(double bytes, char text[32])
{
    snprintf(text, 32, "%.2f MiB", bytes / 1048576);
    return text;
}

static double summary_variable_bytes(const lk_model *model, int begin, int end)
{
    double bytes = 0;
    for (int i = begin; i < end; i++)
        bytes += (double)lk_shape_count(lk_model_variable_shape(model, i)) * sizeof(float);
    return bytes;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

static const char *shape_text(lk_shape shape, char text[64])
{
    int used = 0;
    for (int i = 1; i < shape.ndim; i++)
        used += snprintf(text + used, 64 - (size_t)used, "%s%lld", i > 1 ? "x" : "", (long long)shape.dim[i]);
    return text;
}

static int summary_widest_path(const lk_model *model)
{
    size_t width = strlen("layer");
    for (int i = 0; i < lk_model_layer_count(model); i++) {
        size_t length = strlen(lk_model_layer(model, i).path);
        width = length > width ? length : width;
    }
    return (int)(width > 60 ? 60 : width);
}

/* width: of the paths. A narrow terminal has no room for the kind, nor a very narrow one for the flops. */
static void summary_print_layer(int width, const char *path, const char *kind, const char *output,
                                const char *parameters, const char *flops)
{
    enum { KIND = 15, OUTPUT = 16, AMOUNT = 12 };
    int columns = cli_columns(stdout), rest = width + 2 + OUTPUT + 1 + AMOUNT;
    printf("%-*s  ", width, path);
    if (rest + KIND + 1 + AMOUNT + 1 <= columns)
        printf("%-*s ", KIND, kind);
    printf("%*s %*s", OUTPUT, output, AMOUNT, parameters);
    if (rest + AMOUNT + 1 <= columns)
        printf(" %*s", AMOUNT, flops);
    putchar('\n');
}

static double summary_print_layers(const lk_model *model)
{
    double flops = 0;
    int64_t parameters = 0;
    char shape[64], count[32], amount[32];
    int width = summary_widest_path(model);
    summary_print_layer(width, "layer", "kind", "output", "parameters", "flops");
    for (int i = 0; i < lk_model_layer_count(model); i++) {
        lk_layer_info layer = lk_model_layer(model, i);
        snprintf(count, sizeof count, "%lld", (long long)layer.parameters);
        summary_print_layer(width, layer.path, layer.kind, shape_text(layer.output, shape), count,
                            summary_in_thousands(layer.flops, amount));
        flops += layer.flops;
        parameters += layer.parameters;
    }
    snprintf(count, sizeof count, "%lld", (long long)parameters);
    summary_print_layer(width, "total", "", "", count, summary_in_thousands(flops, amount));
    putchar('\n');
    return flops;
}

/* --- a training step of one sample, counted by the operators that run --------------------------------------------- */

static lk_status summary_run_sample(const lk_model *model, lk_device *device, lk_tensor **variables,
                                    lk_tensor **gradients, double *flops)
{
    lk_model_input in = lk_model_get_input(model);
    lk_status status = lk_model_init(model, device, 0, variables);
    if (status != LK_OK)
        return status;
    lk_tensor *x = lk_zeros(device, LK_F32, LK_SHAPE(1, in.channels, in.height, in.width));
    lk_tensor *label = lk_zeros(device, LK_I32, LK_SHAPE(1)), *index = lk_zeros(device, LK_I64, LK_SHAPE(1));
    double before = lk_device_flops(device);
    lk_tape *tape = lk_tape_begin(variables, lk_model_parameter_count(model));
    lk_tensor *logits = lk_model_forward(model, variables, x, &(lk_forward_opts){.training = true, .indices = &index});
    lk_tensor *loss = lk_sparse_softmax_cross_entropy(logits, label, LK_REDUCTION_SUM);
    status = loss ? lk_tape_gradient(tape, loss, NULL, gradients) : lk_error_status();
    lk_tape_release(tape);
    *flops = lk_device_flops(device) - before;
    return status == LK_OK ? lk_device_sync(device) : status;
}

static lk_status summary_count_training_flops(const lk_model *model, double *flops)
{
    size_t n = (size_t)lk_model_variable_count(model) + 1;
    lk_device *device = lk_device_open("cpu");
    lk_tensor **variables = calloc(n, sizeof(lk_tensor *)), **gradients = calloc(n, sizeof(lk_tensor *));
    lk_status status = device ? LK_ERR_MEMORY : lk_error_status();
    lk_scope_begin();
    if (device && variables && gradients)
        status = summary_run_sample(model, device, variables, gradients, flops);
    lk_scope_end();
    free(variables);
    free(gradients);
    lk_device_release(device);
    return status;
}

/* The limits allow some seconds on one core, and part of a small machine's memory: one line of output is worth no
 * more. */
static const double most_flops_to_count = 3e11, most_bytes_to_count = 1 << 30;

/* A backward pass takes about twice the flops of a forward pass, and a gradient as much memory as its tensor. */
static bool summary_is_worth_running(const lk_model *model, double forward)
{
    lk_model_input in = lk_model_get_input(model);
    double bytes = summary_variable_bytes(model, 0, lk_model_variable_count(model)) +
                   (double)in.channels * (double)in.height * (double)in.width * sizeof(float);
    for (int i = 0; i < lk_model_layer_count(model); i++)
        bytes += (double)lk_shape_count(lk_model_layer(model, i).output) * sizeof(float);
    return 3 * forward <= most_flops_to_count && 2 * bytes <= most_bytes_to_count;
}

static lk_status summary_print_flops(const lk_model *model, double forward)
{
    char text[32];
    double training = 0;
    printf("flops a sample   forward        %12s\n", summary_in_thousands(forward, text));
    if (summary_is_worth_running(model, forward)) {
        lk_status status = summary_count_training_flops(model, &training);
        if (status != LK_OK)
            return status;
    }
    bool is_counted = training > 0;
    char before[80];
    snprintf(before, sizeof before, "                 training step  %12s   ",
             summary_in_thousands(is_counted ? training : 3 * forward, text));
    cli_print_wrapped(
        before, is_counted ? "counted while one ran" : "estimated: the model is too large to run it for that", stdout);
    putchar('\n');
    return LK_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void summary_print_row(const char *what, double bytes, const char *note)
{
    char text[32], before[80];
    bool is_narrow = cli_columns(stdout) < 80; /* leaves room for the note */
    snprintf(before, sizeof before, "  %-*s %*s%s", is_narrow ? 19 : 28, what, is_narrow ? 11 : 14,
             summary_in_mebibytes(bytes, text), *note ? "   " : "");
    cli_print_wrapped(before, note, stdout);
}

static const char *summary_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Estimates the memory of a training on images of the model's input size. */
static lk_status summary_estimate(const lk_model *model, const summary_config *config, lk_memory_estimate *estimate)
{
    lk_train_config train;
    char cpus[32];
    lk_status status = lk_train_defaults(NULL, &train);
    if (status != LK_OK)
        return status;
    snprintf(cpus, sizeof cpus, "%lldxcpu", (long long)config->devices);
    train.model = config->model;
    train.data.name = config->data ? config->data : "synthetic";
    train.data.dir = config->data_dir;
    train.data.resize = config->resize;
    train.data.channels = config->data ? config->channels : 0; /* of a data set; the model has its own */
    train.data.limit_val = 0;
    train.devices.spec = config->on_gpus ? config->device_spec : cpus;
    train.devices.shards = config->shards;
    train.batch_size = config->batch_size;
    train.optimizer.name = optimizers[config->optimizer];
    train.devices.optimizer_state = config->optimizer_state;
    train.optimizer.momentum = config->momentum;
    train.batch_norm.mode = config->batch_norm;
    train.execution.recompute = config->recompute;
    train.execution.micro_batch = config->micro_batch;
    train.execution.dtype = config->dtype;
    return lk_estimate_memory(&train, model, config->memory, estimate);
}

static void summary_print_memory(const summary_config *config, const lk_memory_estimate *e)
{
    int64_t samples = e->samples * e->shards_at_once;
    char note[96];
    cli_printf_wrapped(stdout, "", "memory of a device for a batch of %lld in %lld shard%s on %d device%s",
                       (long long)config->batch_size, (long long)e->shards, summary_plural(e->shards), e->devices,
                       summary_plural(e->devices));
    summary_print_row("parameters, buffers", e->variables, "");
    summary_print_row("gradients", e->gradients,
                      "a shard's, partial sums over shards, and two copies of the last update's sum");
    snprintf(note, sizeof note, "%s%s", optimizers[config->optimizer],
             config->optimizer_state ? ", the device's share of the state" : "");
    summary_print_row("optimizer", e->optimizer, note);
    snprintf(note, sizeof note, "for %lld sample%s: %lld shard%s at once", (long long)samples, summary_plural(samples),
             (long long)e->shards_at_once, summary_plural(e->shards_at_once));
    summary_print_row("activations", e->activations, note);
    summary_print_row("total", e->variables + e->gradients + e->optimizer + e->activations, "");
}

static void summary_print_gpu_memory(const summary_config *config, const lk_memory_estimate *e)
{
    cli_printf_wrapped(stdout, "", "memory of a GPU for a batch of %lld in %lld shard%s on %d device%s in %s%s",
                       (long long)config->batch_size, (long long)e->shards, summary_plural(e->shards), e->devices,
                       summary_plural(e->devices), precisions[config->dtype],
                       config->recompute ? " with --recompute" : "");
    summary_print_row("needed", (double)e->needed, "by estimate, without temporaries of single operators");
    summary_print_row("there", (double)e->available, "including what is in use");
}

/* Prints the memory inside a training step, without its inputs and gradients. */
static void summary_print_step_memory(const summary_config *config, const lk_memory_estimate *e)
{
    const lk_program_memory *memory = &e->step;
    char note[96], pieces[48] = "";
    if (e->micro_batch > 0)
        snprintf(pieces, sizeof pieces, " in pieces of %lld", (long long)e->micro_batch);
    putchar('\n');
    cli_printf_wrapped(stdout, "",
                       "memory inside a training step of a shard of %lld sample%s%s in %s, %d operators%s, as one ran",
                       (long long)e->samples, summary_plural(e->samples), pieces, lk_dtype_name(e->dtype),
                       memory->calls, config->recompute ? " with --recompute" : "");
    snprintf(note, sizeof note, "%.1f%% above the peak",
             memory->peak ? 100.0 * (double)(memory->planned - memory->peak) / (double)memory->peak : 0.0);
    summary_print_row("planned", (double)memory->planned, note);
    summary_print_row("peak", (double)memory->peak, "needed at the same time: no plan can be smaller");
    summary_print_row("sum", (double)memory->sum, "without planning");
    if (memory->kept > 0)
        summary_print_row("kept", (double)memory->kept,
                          "in addition: weights in the order of the kernels, for the device's other shards");
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static lk_status summary_find_input(const summary_config *config, lk_model_input *input)
{
    *input = (lk_model_input){config->channels ? config->channels : 1, config->height ? config->height : 28,
                              config->width ? config->width : 28, config->classes ? config->classes : 10};
    if (!config->data)
        return LK_OK;
    lk_dataset *data;
    const lk_dataset_opts opts = {.dir = config->data_dir,
                                  .limit = 1,
                                  .offline = true,
                                  .resize = config->resize,
                                  .channels = config->channels,
                                  .threads = lk_device_available("cpu"),
                                  .progress = cli_show_data_progress};
    /* The two data sets that "auto" may be have images and classes alike. */
    const char *name = strcmp(config->data, "auto") == 0 ? "synthetic" : config->data;
    lk_status status = lk_dataset_open(name, config->on_gpus ? LK_SPLIT_TRAIN : LK_SPLIT_TEST, &opts, &data);
    if (status == LK_ERR_ARGUMENT && !config->on_gpus && lk_dataset_is_known(name)) {
        lk_error_clear(); /* a folder of your own may have no test set */
        status = lk_dataset_open(name, LK_SPLIT_TRAIN, &opts, &data);
    }
    if (status != LK_OK)
        return status;
    cli_stop_asking();
    *input = (lk_model_input){lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data),
                              lk_dataset_classes(data)};
    lk_dataset_release(data);
    return LK_OK;
}

static lk_status summary_print(const lk_model *model, const summary_config *config)
{
    lk_model_input in = lk_model_get_input(model);
    lk_memory_estimate estimate;
    lk_status status = summary_estimate(model, config, &estimate);
    if (status != LK_OK)
        return status;
    printf("%s: images %lldx%lldx%lld, %lld classes\n\n", lk_model_name(model), (long long)in.channels,
           (long long)in.height, (long long)in.width, (long long)in.classes);
    status = summary_print_flops(model, summary_print_layers(model));
    if (status != LK_OK)
        return status;
    if (config->on_gpus) {
        summary_print_gpu_memory(config, &estimate);
        return LK_OK;
    }
    summary_print_memory(config, &estimate);
    if (config->memory)
        summary_print_step_memory(config, &estimate);
    return LK_OK;
}

/* Returns the first option given that must be with --memory, or NULL. */
static const char *summary_needs_memory(const summary_config *config)
{
    if (config->recompute)
        return "recompute";
    if (config->micro_batch >= 0)
        return "micro-batch";
    return config->dtype != LK_PRECISION_F32 ? "dtype" : NULL;
}

/* Sets devices and on_gpus from --devices. Returns 0, or the exit status with the error printed. */
static int summary_count_devices(summary_config *config)
{
    int count;
    if (lk_devices_count(config->device_spec, &count) != LK_OK)
        return cli_fail();
    config->devices = count;
    config->on_gpus = strstr(config->device_spec, "cuda") != NULL;
    if (!config->on_gpus && strspn(config->device_spec, "0123456789") < strlen(config->device_spec))
        return cli_usage_error("--devices %s: must be a number of devices, or GPUs", config->device_spec);
    if (config->on_gpus && !config->memory)
        return cli_usage_error("--devices %s: must be with --memory", config->device_spec);
    return 0;
}

/* Returns the first option given that sizes images which come from no data set, or NULL. */
static const char *summary_sizes_images(const summary_config *config)
{
    if (config->height)
        return "height";
    if (config->width)
        return "width";
    return config->classes ? "classes" : NULL;
}

static int summary_run(int argc, char **argv)
{
    summary_config config;
    lk_model_input input;
    if (cli_parse(&cmd_summary, argc, argv, &config, NULL) != LK_OK)
        return cli_fail();
    int failed = summary_count_devices(&config);
    if (failed)
        return failed;
    const char *size = summary_sizes_images(&config);
    if (config.data && size)
        return cli_usage_error("--%s: must be without --data, whose images and classes count", size);
    if (config.on_gpus && !config.data && (size || config.channels > 1)) /* it takes images from a data set */
        return cli_usage_error("--devices %s: images of another size must come from --data", config.device_spec);
    if (config.resize && !config.data)
        return cli_usage_error("--resize %s: must be with --data; --height and --width are without", config.resize);
    cli_catch_interrupts(NULL);
    int64_t most = config.shards ? config.shards : config.batch_size;
    if (config.shards > config.batch_size)
        return cli_usage_error("--shards %lld: must be at most the batch size, %lld", (long long)config.shards,
                               (long long)config.batch_size);
    if (config.devices > most)
        return cli_usage_error("--devices %lld: must be at most the number of shards, %lld", (long long)config.devices,
                               (long long)most);
    const char *option = summary_needs_memory(&config);
    if (option && !config.memory)
        return cli_usage_error("--%s: must be with --memory", option);
    if (lk_model_check(config.model) != LK_OK || summary_find_input(&config, &input) != LK_OK)
        return cli_fail();
    lk_model *model = lk_model_new(config.model, input);
    lk_status status = model ? summary_print(model, &config) : lk_error_status();
    lk_model_release(model);
    return status == LK_OK ? 0 : cli_fail();
}

const cli_command cmd_summary = {
    .name = "summary",
    .summary = "List a model's layers, its operations and the memory that training takes",
    .details =
        "Flops are floating-point operations as operators count them: a multiplication and an addition are two.\n"
        "Memory is the size of the tensors on the device that holds most, in f32, computed from the layers' shapes.\n"
        "Measured runs of the reference models on CPU devices took 9% less to 12% more.\n",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = summary_run,
};
