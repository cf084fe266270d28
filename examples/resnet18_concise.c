/* Training on several devices, concisely, after Dive into Deep Learning, "Concise Implementation for Multiple GPUs": a
 * ResNet-18 for Fashion-MNIST, and train(net, num_devices, batch_size, lr). It prints test accuracy and seconds per
 * epoch for one device and for two, then for two with twice the batch and the rate as in the book, and draws accuracy
 * and losses while it trains.
 *
 *   resnet18_concise [DATA [EPOCHS [IMAGES]]]
 *
 * DATA: fashion-mnist (default), mnist or synthetic. EPOCHS: default 10. IMAGES: train and test on the first IMAGES;
 * 0: all (default).
 *
 * A batch is always cut into SHARDS parts, and batch-norm normalizes each part. So the first two runs end with the same
 * accuracy and the same digest of the trained variables. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

enum { SHARDS = 8 };

static const char *data_name = "fashion-mnist";
static long num_epochs = 10, images = 0;

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "resnet18_concise: %s\n", lk_error_message());
    exit(1);
}

/* --- a toy network ------------------------------------------------------------------------------------------------ */

/* Initial weights are N(0, 0.01), and initial biases those of PyTorch. */
static const lk_init init_weights = {.kind = LK_INIT_NORMAL, .value = 0.01},
                     init_biases = {.kind = LK_INIT_TORCH_UNIFORM};

static lk_layer *conv2d(int64_t channels, int64_t kernel_size, int64_t stride, int64_t padding)
{
    const lk_conv2d_layer_opts opts = {
        .stride = stride, .padding = padding, .weight = init_weights, .bias = init_biases};
    return lk_layer_conv2d(channels, kernel_size, &opts);
}

static lk_layer *relu(void)
{
    return lk_layer_activation(LK_RELU);
}

static lk_layer *residual(int64_t channels, bool use_1x1conv, int64_t stride)
{
    lk_layer *body = LK_SEQUENTIAL(conv2d(channels, 3, stride, 1), lk_layer_batch_norm(NULL), relu(),
                                   conv2d(channels, 3, 1, 1), lk_layer_batch_norm(NULL));
    lk_layer *shortcut = use_1x1conv ? conv2d(channels, 1, stride, 0) : lk_layer_identity();
    return LK_SEQUENTIAL(lk_layer_add(body, shortcut), relu());
}

static lk_layer *resnet_block(const char *name, int64_t channels, bool first_block)
{
    lk_layer *first = first_block ? residual(channels, false, 1) : residual(channels, true, 2);
    lk_layer *second = residual(channels, false, 1);
    return lk_layer_named(name, LK_SEQUENTIAL(lk_layer_named("1", first), lk_layer_named("2", second)));
}

/* A slightly modified ResNet-18: a smaller convolution at the beginning, and no max pooling. */
static lk_model *resnet18(int64_t num_classes, int64_t in_channels)
{
    const lk_dense_layer_opts dense = {.weight = init_weights, .bias = init_biases};
    lk_layer *net =
        LK_SEQUENTIAL(conv2d(64, 3, 1, 1), lk_layer_batch_norm(NULL), relu(), resnet_block("resnet_block1", 64, true),
                      resnet_block("resnet_block2", 128, false), resnet_block("resnet_block3", 256, false),
                      resnet_block("resnet_block4", 512, false), lk_layer_global_avg_pool(),
                      lk_layer_named("fc", lk_layer_dense(num_classes, &dense)));
    return lk_model_build("resnet18", net, (lk_model_input){in_channels, 28, 28, num_classes});
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static void train(lk_model *net, int num_devices, int64_t batch_size, double lr)
{
    char devices[16];
    lk_train_config config;
    lk_train_result result;
    snprintf(devices, sizeof devices, "%dxcpu", num_devices);
    check(lk_train_defaults(NULL, &config));
    config.data.name = data_name;
    config.data.limit_train = config.data.limit_val = images > 0 ? images : -1;
    config.devices.spec = devices;
    config.devices.shards = SHARDS;
    config.batch_size = batch_size;
    config.epochs = num_epochs;
    config.optimizer.name = "sgd";
    config.optimizer.base_lr = lr;
    config.optimizer.schedule = "constant";

    lk_trainer *trainer = lk_trainer_new_with(&config, net);
    check(trainer ? LK_OK : lk_error_status());
    check(lk_trainer_add(trainer, lk_callback_live_plot(stdout)));
    check(lk_trainer_fit(trainer, &result));

    printf("test acc: %.4f, %.1f sec/epoch on", lk_mean_value(result.val.accuracy),
           result.seconds / (double)result.epochs);
    for (int d = 0; d < num_devices; d++)
        printf(" %s", lk_device_name(lk_strategy_device(lk_trainer_strategy(trainer), d)));
    printf("\ndigest: %s\n", result.digest);
    fflush(stdout);
    lk_trainer_release(trainer);
}

static long number(const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text && *end == '\0' && value >= least && value <= most)
        return value;
    fprintf(stderr, "resnet18_concise: '%s': a number from %ld to %ld is needed\n", text, least, most);
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        data_name = argv[1];
    if (argc > 2)
        num_epochs = number(argv[2], 1, 1000);
    if (argc > 3)
        images = number(argv[3], 0, 60000);
    train(resnet18(10, 1), 1, 256, 0.1);
    train(resnet18(10, 1), 2, 256, 0.1);
    train(resnet18(10, 1), 2, 512, 0.2);
    return 0;
}
