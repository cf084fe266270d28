/* A model's layers, what a sample costs, and the memory of a device in training.
 *
 * Memory is reckoned from the layers' shapes. What there always is: parameters and buffers, what the optimiser
 * remembers, its own copy of the gradients, and those of the last update. What comes on top where a shard needs most,
 * which is the largest over all layers on the way back of: outputs up to the layer that some gradient still reads, the
 * gradients of its output and its input, the gradients of parameters from it on; and sums of earlier shards that wait
 * for their sibling in the tree. Conversions between layouts and padded ones are not counted, nor are outputs that no
 * gradient reads, which a device that runs behind its queue has freed by then. */
#include "cli.h"
#include "data_progress.h"
#include "gpu_memory.h"
#include "interrupts.h"
#include "program_memory.h"

#include "lockstep/autograd.h"
#include "lockstep/data.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"
#include "lockstep/train.h"

#include <stdlib.h>
#include <string.h>

typedef struct summary_config {
    const char *model, *data, *data_dir;
    int64_t channels, height, width, classes;
    int64_t batch_size, shards;
    const char *device_spec;
    int64_t devices; /* that it names */
    bool on_gpus;
    int optimizer; /* lk_optimizer_kind */
    double momentum;
    int batch_norm;
    bool memory, recompute;
    int64_t micro_batch;
    int dtype; /* enum lk_precision */
} summary_config;

static const char *const optimizers[] = {"sgd", "adam", "adamw", "lars", NULL};
static const char *const batch_norms[] = {"shard", "sync", NULL};
enum { BN_SHARD, BN_SYNC };
static const char *const precisions[] = {"f32", "bf16", NULL};

/* clang-format off */
#define AT(field) offsetof(summary_config, field)
static const lk_option options[] = {
    {.name = "model", .type = LK_OPTION_STRING, .offset = AT(model), .default_text = "lenet", .value = "NAME",
     .help = "A reference model ('lockstep models') or a model file"},
    {.name = "data", .type = LK_OPTION_STRING, .offset = AT(data), .value = "NAME",
     .help = "Take the images' size and the classes from this data set; nothing is downloaded"},
    {.name = "data-dir", .type = LK_OPTION_STRING, .offset = AT(data_dir), .value = "DIR",
     .help = "Where to look for data first"},
    {.name = "channels", .type = LK_OPTION_INT64, .offset = AT(channels), .default_text = "1", .minimum = 1,
     .maximum = 65536, .value = "N", .help = "Channels of an image"},
    {.name = "height", .type = LK_OPTION_INT64, .offset = AT(height), .default_text = "28", .minimum = 1,
     .maximum = 65536, .value = "N", .help = "Height of an image"},
    {.name = "width", .type = LK_OPTION_INT64, .offset = AT(width), .default_text = "28", .minimum = 1,
     .maximum = 65536, .value = "N", .help = "Width of an image"},
    {.name = "classes", .type = LK_OPTION_INT64, .offset = AT(classes), .default_text = "10", .minimum = 1,
     .maximum = 1000000, .value = "N", .help = "Classes"},
    {.name = "batch-size", .type = LK_OPTION_INT64, .offset = AT(batch_size), .default_text = "256", .minimum = 1,
     .maximum = 1 << 30, .value = "N", .help = "Samples in a global batch"},
    {.name = "shards", .type = LK_OPTION_INT64, .offset = AT(shards), .default_text = "0", .minimum = 1,
     .maximum = 1 << 20, .value = "V", .help = "Logical shards of a batch; unset: as training would choose"},
    {.name = "devices", .type = LK_OPTION_STRING, .offset = AT(device_spec), .default_text = "1", .value = "N",
     .help = "Devices that share a batch; with --memory also GPUs, as in training: cuda, 2xcuda, cuda:1"},
    {.name = "optimizer", .type = LK_OPTION_CHOICE, .offset = AT(optimizer), .default_text = "sgd",
     .choices = optimizers, .value = "NAME", .help = "What remembers something about every parameter"},
    {.name = "momentum", .type = LK_OPTION_DOUBLE, .offset = AT(momentum), .default_text = "0", .least = 0,
     .greatest = LK_BELOW_ONE, .value = "M", .help = "Momentum of sgd and lars"},
    {.name = "bn", .type = LK_OPTION_CHOICE, .offset = AT(batch_norm), .default_text = "shard",
     .choices = batch_norms, .value = "MODE",
     .help = "Batch-norm by shard, or over the global batch: a device then holds all its shards at once"},
    {.name = "memory", .type = LK_OPTION_FLAG, .offset = AT(memory),
     .help = "Run a shard's training step once, and print what its memory plan takes (with --bn shard); of a GPU, "
             "print what training is estimated to take there, and how much there is"},
    {.name = "recompute", .type = LK_OPTION_FLAG, .offset = AT(recompute),
     .help = "With --memory: of a step that makes again what backward needs instead of keeping all of it"},
    {.name = "micro-batch", .type = LK_OPTION_INT64, .offset = AT(micro_batch), .default_text = "-1", .minimum = 0,
     .maximum = 1 << 24, .value = "N",
     .help = "With --memory: of a shard in pieces of N samples; 0: whole; unset: as training would choose"},
    {.name = "dtype", .type = LK_OPTION_CHOICE, .offset = AT(dtype), .default_text = "f32", .choices = precisions,
     .value = "TYPE", .help = "With --memory: of layers that compute in it, as in training"},
};
/* clang-format on */
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* "1.23 M" */
static const char *in_thousands(double value, char text[32])
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

static const char *in_mebibytes(double bytes, char text[32])
{
    snprintf(text, 32, "%.2f MiB", bytes / 1048576);
    return text;
}

static double variable_bytes(const lk_model *model, int begin, int end)
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

static int widest_path(const lk_model *model)
{
    size_t width = strlen("layer");
    for (int i = 0; i < lk_model_layer_count(model); i++) {
        size_t length = strlen(lk_model_layer(model, i).path);
        width = length > width ? length : width;
    }
    return (int)(width > 60 ? 60 : width);
}

static double print_layers(const lk_model *model)
{
    double flops = 0;
    int64_t parameters = 0;
    char shape[64], amount[32];
    int width = widest_path(model);
    printf("%-*s  %-15s %16s %12s %12s\n", width, "layer", "kind", "output", "parameters", "flops");
    for (int i = 0; i < lk_model_layer_count(model); i++) {
        lk_layer_info layer = lk_model_layer(model, i);
        printf("%-*s  %-15s %16s %12lld %12s\n", width, layer.path, layer.kind, shape_text(layer.output, shape),
               (long long)layer.parameters, in_thousands(layer.flops, amount));
        flops += layer.flops;
        parameters += layer.parameters;
    }
    printf("%-*s  %-15s %16s %12lld %12s\n\n", width, "total", "", "", (long long)parameters,
           in_thousands(flops, amount));
    return flops;
}

/* --- a training step of one sample, counted by the operators that run --------------------------------------------- */

static lk_status run_sample(const lk_model *model, lk_device *device, lk_tensor **variables, lk_tensor **gradients,
                            double *flops)
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

static lk_status count_training_flops(const lk_model *model, double *flops)
{
    size_t n = (size_t)lk_model_variable_count(model) + 1;
    lk_device *device = lk_device_open("cpu");
    lk_tensor **variables = calloc(n, sizeof(lk_tensor *)), **gradients = calloc(n, sizeof(lk_tensor *));
    lk_status status = device ? LK_ERR_MEMORY : lk_error_status();
    lk_scope_begin();
    if (device && variables && gradients)
        status = run_sample(model, device, variables, gradients, flops);
    lk_scope_end();
    free(variables);
    free(gradients);
    lk_device_release(device);
    return status;
}

/* Seconds of a core, and a share of a small machine's memory: more is not worth it for one line. */
static const double most_flops_to_count = 3e11, most_bytes_to_count = 1 << 30;

/* A backward pass takes about twice the flops of a forward pass, and a gradient the memory of what it is of. */
static bool is_worth_running(const lk_model *model, double forward)
{
    double bytes = variable_bytes(model, 0, lk_model_variable_count(model));
    for (int i = 0; i < lk_model_layer_count(model); i++)
        bytes += (double)lk_shape_count(lk_model_layer(model, i).output) * sizeof(float);
    return 3 * forward <= most_flops_to_count && 2 * bytes <= most_bytes_to_count;
}

static lk_status print_flops(const lk_model *model, double forward)
{
    char text[32];
    double training = 0;
    printf("flops a sample   forward        %12s\n", in_thousands(forward, text));
    if (is_worth_running(model, forward)) {
        lk_status status = count_training_flops(model, &training);
        if (status != LK_OK)
            return status;
    }
    if (training > 0)
        printf("                 training step  %12s   counted while one ran\n\n", in_thousands(training, text));
    else
        printf("                 training step   not counted: the model is too large to run it for that\n\n");
    return LK_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* How many tensors of the parameters' size the optimiser remembers: asked of one with a single parameter. */
static lk_status count_states(const summary_config *config, int *states)
{
    *states = 0;
    lk_device *device = lk_device_open("cpu");
    if (!device)
        return lk_error_status();
    lk_scope_begin();
    const lk_optimizer_opts opts = {.kind = (lk_optimizer_kind)config->optimizer, .momentum = config->momentum};
    lk_tensor *parameter = lk_tensor_retain(lk_zeros(device, LK_F32, LK_SHAPE(1))), *flat = NULL;
    lk_status status = parameter ? lk_pack(&parameter, 1, &flat) : lk_error_status();
    lk_optimizer *optimizer = status == LK_OK ? lk_optimizer_new(&opts, flat, &parameter, 1) : NULL;
    while (optimizer && lk_optimizer_state(optimizer, *states, NULL))
        ++*states;
    if (!optimizer)
        status = lk_error_status();
    lk_optimizer_release(optimizer);
    lk_tensor_release(parameter);
    lk_scope_end();
    lk_device_release(device);
    return status;
}

/* As few nodes of the tree over [lo, hi) as cover the shards of `part`: see lk_shard_sum. */
static int covering_nodes(int64_t lo, int64_t hi, lk_range part)
{
    int64_t middle = lo + (hi - lo) / 2;
    if (part.end <= lo || part.begin >= hi)
        return 0;
    if (part.begin <= lo && part.end >= hi)
        return 1;
    return covering_nodes(lo, middle, part) + covering_nodes(middle, hi, part);
}

/* The most sums that wait on one device while it runs a shard: what it has finished before covers as many nodes. */
static int waiting_sums(int64_t shards, int64_t devices)
{
    int most = 0;
    for (int64_t d = 0; d < devices; d++) {
        lk_range own = lk_part(shards, devices, d), done = own;
        for (done.end = own.begin; done.end < own.end; done.end++) {
            int waiting = covering_nodes(0, shards, done);
            most = waiting > most ? waiting : most;
        }
    }
    return most;
}

/* The layer where the way back takes most: its activations, with their gradients, and gradients of parameters. */
static void shard_peak(const lk_model *model, double samples, double *activations, double *gradients)
{
    double held = 0, found = 0, peak = 0;
    int n = lk_model_layer_count(model);
    for (int i = 0; i < n; i++)
        held += samples * (double)lk_model_layer(model, i).bytes;
    *activations = *gradients = 0;
    for (int i = n - 1; i >= 0; i--) {
        lk_layer_info layer = lk_model_layer(model, i);
        lk_model_input in = lk_model_get_input(model);
        double below = i > 0 ? (double)lk_shape_count(lk_model_layer(model, i - 1).output)
                             : (double)in.channels * (double)in.height * (double)in.width;
        double passing = samples * sizeof(float) * ((double)lk_shape_count(layer.output) + below);
        found += (double)layer.parameters * sizeof(float);
        if (held + passing + found > peak) {
            peak = held + passing + found;
            *activations = held + passing;
            *gradients = found;
        }
        held -= samples * (double)layer.bytes;
    }
}

static void print_row(const char *what, double bytes, const char *note)
{
    char text[32];
    printf("  %-28s %14s%s%s\n", what, in_mebibytes(bytes, text), *note ? "   " : "", note);
}

static lk_status print_memory(const lk_model *model, const summary_config *config)
{
    int n = lk_model_parameter_count(model), states;
    lk_status status = count_states(config, &states);
    if (status != LK_OK)
        return status;
    int64_t shards = config->shards ? config->shards : lk_default_shards(config->batch_size, config->devices);
    int64_t of_device = (shards + config->devices - 1) / config->devices;
    int64_t samples = (config->batch_size + shards - 1) / shards;
    int64_t at_once = config->batch_norm == BN_SYNC && lk_model_has_batch_norm(model) ? of_device : 1;
    double parameters = variable_bytes(model, 0, n), buffers = variable_bytes(model, n, lk_model_variable_count(model));
    double activations, gradients;
    char note[96];
    shard_peak(model, (double)(samples * at_once), &activations, &gradients);
    /* The optimiser's copy, the last update's, and the sums in the tree; with all shards at once each has its own. */
    double sums = at_once > 1 ? (double)(at_once - 1) * gradients : waiting_sums(shards, config->devices) * parameters;
    double all_gradients = 2 * parameters + sums + gradients;
    printf("memory of a device for a batch of %lld in %lld shard%s on %lld device%s\n", (long long)config->batch_size,
           (long long)shards, shards == 1 ? "" : "s", (long long)config->devices, config->devices == 1 ? "" : "s");
    print_row("parameters, buffers", parameters + buffers, "");
    print_row("gradients", all_gradients, "of the shard, of sums that wait in the tree, and the last update's twice");
    print_row("optimiser", states * parameters, optimizers[config->optimizer]);
    long long at_hand = samples * at_once;
    snprintf(note, sizeof note, "of %lld sample%s: %lld shard%s at once", at_hand, at_hand == 1 ? "" : "s",
             (long long)at_once, at_once == 1 ? "" : "s");
    print_row("activations", activations, note);
    print_row("total", parameters + buffers + all_gradients + states * parameters + activations, "");
    return LK_OK;
}

/* Of a data set of the images that the model was made for. */
static lk_status find_gpu_memory(const summary_config *config, cli_gpu_memory *memory)
{
    lk_train_config train;
    lk_status status = lk_train_defaults(NULL, &train);
    if (status != LK_OK)
        return status;
    train.model = config->model;
    train.data = config->data ? config->data : "synthetic";
    train.data_dir = config->data_dir;
    train.devices = config->device_spec;
    train.batch_size = config->batch_size;
    train.shards = config->shards;
    train.optimizer = optimizers[config->optimizer];
    train.momentum = config->momentum;
    train.batch_norm = config->batch_norm == BN_SYNC ? LK_BN_SYNC : LK_BN_SHARD;
    train.recompute = config->recompute;
    train.micro_batch = config->micro_batch;
    train.dtype = config->dtype;
    train.limit_val = 0;
    return cli_gpu_memory_of(&train, memory);
}

static void print_gpu_memory(const summary_config *config, const cli_gpu_memory *memory)
{
    printf("memory of a GPU for a batch of %lld in %lld shard%s on %d device%s in %s%s\n",
           (long long)config->batch_size, (long long)memory->shards, memory->shards == 1 ? "" : "s", memory->devices,
           memory->devices == 1 ? "" : "s", precisions[config->dtype], config->recompute ? " with --recompute" : "");
    print_row("needed", (double)memory->needed, "by estimate, without temporaries of single operators");
    print_row("there", (double)memory->there, "with what is taken already");
}

static lk_status plan_step(const lk_model *model, const summary_config *config, cli_training_step *step)
{
    int64_t shards = config->shards ? config->shards : lk_default_shards(config->batch_size, config->devices);
    *step = (cli_training_step){.samples = (config->batch_size + shards - 1) / shards,
                                .dtype = config->dtype == LK_PRECISION_BF16 ? LK_BF16 : LK_F32,
                                .recompute = config->recompute};
    if (shards > config->devices) /* as training does it */
        step->keep_bytes = (size_t)variable_bytes(model, 0, lk_model_parameter_count(model));
    return lk_plan_micro_batch(model, step->samples, config->micro_batch, &step->micro_batch);
}

/* What lies inside a replay: neither its inputs nor gradients. */
static lk_status print_plan(const lk_model *model, const cli_training_step *step)
{
    lk_program_memory memory;
    char note[96];
    lk_status status = cli_program_memory(model, step, &memory);
    if (status != LK_OK)
        return status;
    printf("\nmemory inside a training step of a shard of %lld sample%s", (long long)step->samples,
           step->samples == 1 ? "" : "s");
    if (step->micro_batch > 0)
        printf(" in pieces of %lld", (long long)step->micro_batch);
    printf(" in %s, %d operators%s, as one ran\n", lk_dtype_name(step->dtype), memory.calls,
           step->recompute ? " with --recompute" : "");
    snprintf(note, sizeof note, "%.1f%% above the peak",
             memory.peak ? 100.0 * (double)(memory.planned - memory.peak) / (double)memory.peak : 0.0);
    print_row("planned", (double)memory.planned, note);
    print_row("peak", (double)memory.peak, "needed at the same time: no plan can be smaller");
    print_row("sum", (double)memory.sum, "without planning");
    if (memory.kept > 0)
        print_row("kept", (double)memory.kept,
                  "beside it, of weights in the kernels' order, for the device's other shards");
    return LK_OK;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static lk_status find_input(const summary_config *config, lk_model_input *input)
{
    *input = (lk_model_input){config->channels, config->height, config->width, config->classes};
    if (!config->data)
        return LK_OK;
    lk_dataset *data;
    const lk_dataset_opts opts = {.dir = config->data_dir,
                                  .limit = 1,
                                  .offline = true,
                                  .threads = lk_device_available("cpu"),
                                  .progress = cli_show_data_progress};
    lk_status status = lk_dataset_open(config->data, config->on_gpus ? LK_SPLIT_TRAIN : LK_SPLIT_TEST, &opts, &data);
    if (status == LK_ERR_ARGUMENT && !config->on_gpus && lk_dataset_is_known(config->data)) {
        lk_error_clear(); /* data of one's own may have no test set */
        status = lk_dataset_open(config->data, LK_SPLIT_TRAIN, &opts, &data);
    }
    if (status != LK_OK)
        return status;
    cli_stop_asking();
    *input = (lk_model_input){lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data),
                              lk_dataset_classes(data)};
    lk_dataset_release(data);
    return LK_OK;
}

static lk_status summarise(const lk_model *model, const summary_config *config)
{
    lk_model_input in = lk_model_get_input(model);
    cli_training_step step;
    cli_gpu_memory gpu;
    lk_status status = config->on_gpus ? find_gpu_memory(config, &gpu) : plan_step(model, config, &step);
    if (status != LK_OK)
        return status;
    printf("%s: images %lldx%lldx%lld, %lld classes\n\n", lk_model_name(model), (long long)in.channels,
           (long long)in.height, (long long)in.width, (long long)in.classes);
    status = print_flops(model, print_layers(model));
    if (status == LK_OK && config->on_gpus) {
        print_gpu_memory(config, &gpu);
        return LK_OK;
    }
    if (status == LK_OK)
        status = print_memory(model, config);
    return status == LK_OK && config->memory ? print_plan(model, &step) : status;
}

/* The first option given that is about --memory alone; NULL: none. */
static const char *needs_memory(const summary_config *config)
{
    if (config->recompute)
        return "recompute";
    if (config->micro_batch >= 0)
        return "micro-batch";
    return config->dtype != LK_PRECISION_F32 ? "dtype" : NULL;
}

/* A number of devices, or GPUs. */
static int count_devices(summary_config *config)
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

/* Training takes images from a data set; a generated one has those that are the default here. */
static bool has_other_images(const summary_config *config)
{
    return !config->data &&
           (config->channels != 1 || config->height != 28 || config->width != 28 || config->classes != 10);
}

static int run(int argc, char **argv)
{
    summary_config config;
    lk_model_input input;
    if (cli_parse(&cmd_summary, argc, argv, &config, NULL) != LK_OK)
        return cli_fail();
    int failed = count_devices(&config);
    if (failed)
        return failed;
    if (config.on_gpus && has_other_images(&config))
        return cli_usage_error("--devices %s: images of another size must be those of --data", config.device_spec);
    cli_catch_interrupts(NULL);
    int64_t most = config.shards ? config.shards : config.batch_size;
    if (config.shards > config.batch_size)
        return cli_usage_error("--shards %lld: a batch of %lld has at most that many", (long long)config.shards,
                               (long long)config.batch_size);
    if (config.devices > most)
        return cli_usage_error("--devices %lld: %lld shards are not one for each", (long long)config.devices,
                               (long long)most);
    const char *option = needs_memory(&config);
    if (option && !config.memory)
        return cli_usage_error("--%s: must be with --memory", option);
    if (lk_model_check(config.model) != LK_OK || find_input(&config, &input) != LK_OK)
        return cli_fail();
    lk_model *model = lk_model_new(config.model, input);
    lk_status status = model ? summarise(model, &config) : lk_error_status();
    lk_model_release(model);
    return status == LK_OK ? 0 : cli_fail();
}

const cli_command cmd_summary = {
    .name = "summary",
    .summary = "List a model's layers, and what training it takes",
    .details =
        "Flops are floating-point operations as the operators count them: a multiplication and an addition are two.\n"
        "Memory is what tensors take on the device that holds most, in f32, reckoned from the layers' shapes; runs of\n"
        "the reference models on CPU devices were seen to take 9% less to 12% more.\n",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
