/* A WideResNet-16-10 for Fashion-MNIST, after NVIDIA's lab on training with several GPUs (fashion_mnist.py): the same
 * arguments and network, and its three callbacks written out. `--help` lists the arguments.
 *
 * `lockstep train --recipe fashion-mnist-wrn` trains the same network without C, to the same digest. */
#define _POSIX_C_SOURCE 199309L /* clock_gettime, with -std=c11 too */

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "fashion_mnist_wrn: %s\n", lk_error_message());
    exit(1);
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

#define AT(field) .offset = offsetof(lk_train_config, field)
#define NUMBER(most) .type = LK_OPTION_INT64, .minimum = 1, .maximum = (most), .value = "N"
#define REAL(most) .type = LK_OPTION_DOUBLE, .least = 0, .greatest = (most), .value = "X"
#define TEXT(name) .type = LK_OPTION_STRING, .value = (name)

/* The lab's arguments, then those that say which devices and how much to train. */
static const lk_option arguments[] = {
    {"log-dir", TEXT("DIR"), AT(records.log_dir), .default_text = "./logs", .help = "tensorboard log directory"},
    {"batch-size", NUMBER(60000), AT(batch_size), .default_text = "32", .help = "input batch size for training"},
    {"val-batch-size", NUMBER(60000), AT(val_batch_size), .default_text = "32",
     .help = "input batch size for validation"},
    {"epochs", NUMBER(1000), AT(epochs), .default_text = "40", .help = "number of epochs to train"},
    {"base-lr", REAL(1e6), AT(optimizer.base_lr), .default_text = "0.01", .help = "learning rate"},
    {"wd", REAL(1e3), AT(optimizer.weight_decay), .default_text = "0.000005", .help = "weight decay"},
    {"target-accuracy", REAL(1), AT(stop.target_accuracy), .default_text = "0.85",
     .help = "target accuracy to stop training"},
    {"patience", REAL(1000), AT(stop.patience), .default_text = "2",
     .help = "number of epochs that meet target before stopping"},

    {"data", TEXT("NAME"), AT(data.name), .default_text = "fashion-mnist", .help = "fashion-mnist, mnist or synthetic"},
    {"limit-train", NUMBER(60000), AT(data.limit_train), .default_text = "10000",
     .help = "train on the first N images"},
    {"limit-val", NUMBER(10000), AT(data.limit_val), .default_text = "10000", .help = "validate on the first N images"},
    {"devices", TEXT("SPEC"), AT(devices.spec),
     .help = "1xcpu, 2xcpu, … (default: all cores, at most one for each shard)"},
    {"shards", NUMBER(1024), AT(devices.shards), .default_text = "0",
     .help = "parts of a batch; results are the same for up to so many devices (default: as for lockstep train)"},
};

enum { ARGUMENT_COUNT = sizeof arguments / sizeof arguments[0] };

/* --- the model ---------------------------------------------------------------------------------------------------- */

/* Layers have the names of the reference model, because initial weights depend on names. */
static lk_layer *conv2d(const char *name, int64_t filters, int64_t kernel)
{
    return lk_layer_named(name, lk_layer_conv2d(filters, kernel, &(lk_conv2d_layer_opts){.same = true}));
}

/* Convolution, batch normalization with Keras' constants (a momentum of 0.99 there is 0.01 here), ReLU. */
static lk_layer *cbr(const char *conv, const char *norm, int64_t filters)
{
    const lk_batch_norm_layer_opts keras = {.epsilon = 1e-3, .momentum = 0.01};
    return LK_SEQUENTIAL(conv2d(conv, filters, 3), lk_layer_named(norm, lk_layer_batch_norm(&keras)),
                         lk_layer_activation(LK_RELU));
}

static lk_layer *conv_block(int64_t filters, bool scale_input)
{
    lk_layer *body = LK_SEQUENTIAL(cbr("conv1", "bn1", filters), lk_layer_dropout(0.01), cbr("conv2", "bn2", filters));
    return lk_layer_add(body, scale_input ? conv2d("conv3", filters, 1) : lk_layer_identity());
}

/* Two conv_blocks of one width. */
static lk_layer *block(const char *name, int64_t filters)
{
    return lk_layer_named(name, LK_SEQUENTIAL(lk_layer_named("1", conv_block(filters, true)),
                                              lk_layer_named("2", conv_block(filters, false))));
}

static lk_model *create_model(void)
{
    lk_layer *layers = LK_SEQUENTIAL(cbr("conv1", "bn1", 16), block("block1", 160), lk_layer_max_pool(2, NULL),
                                     block("block2", 320), lk_layer_max_pool(2, NULL), block("block3", 640),
                                     lk_layer_global_avg_pool(), lk_layer_named("dense", lk_layer_dense(10, NULL)));
    return lk_model_build("wrn-16-10", layers, (lk_model_input){1, 28, 28, 10});
}

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A simple learning rate decay over time. */
static double lr_schedule(void *user, double epoch, double base_lr)
{
    (void)user;
    if (epoch < 15)
        return base_lr;
    if (epoch < 25)
        return 1e-1 * base_lr;
    if (epoch < 35)
        return 1e-2 * base_lr;
    return 1e-3 * base_lr;
}

typedef struct print_throughput {
    int64_t total_images;
    double epoch_start_time;
} print_throughput;

static lk_status throughput_epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    (void)trainer, (void)epoch;
    print_throughput *p = self;
    p->epoch_start_time = now();
    return LK_OK;
}

static lk_status throughput_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)report, (void)stop;
    const print_throughput *p = self;
    double epoch_time = now() - p->epoch_start_time;
    printf("Images/sec: %.2f\n", (double)p->total_images / epoch_time);
    return LK_OK;
}

typedef struct stop_at_accuracy {
    double target, patience;
    int64_t stopped_epoch, met_target;
} stop_at_accuracy;

static lk_status stop_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer;
    stop_at_accuracy *s = self;
    s->met_target = lk_mean_value(report->val.accuracy) > s->target ? s->met_target + 1 : 0;
    if (s->met_target > 0 && (double)s->met_target >= s->patience) {
        s->stopped_epoch = report->epoch;
        *stop = true;
    }
    return LK_OK;
}

static lk_status stop_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    const stop_at_accuracy *s = self;
    if (s->stopped_epoch > 0)
        printf("Early stopping after epoch %lld\n", (long long)s->stopped_epoch);
    return LK_OK;
}

typedef struct print_total_time {
    double start_time;
} print_total_time;

static lk_status total_time_train_begin(void *self, lk_trainer *trainer)
{
    (void)trainer;
    print_total_time *p = self;
    p->start_time = now();
    return LK_OK;
}

static lk_status total_time_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    const print_total_time *p = self;
    printf("Cumulative training time after epoch %lld: %.2f\n", (long long)report->epoch, now() - p->start_time);
    return LK_OK;
}

static lk_status total_time_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    const print_total_time *p = self;
    printf("Cumulative training time: %.2f\n", now() - p->start_time);
    return LK_OK;
}

/* The lines that Keras prints itself. */
static lk_status print_epoch(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)self, (void)stop;
    printf("Epoch %lld/%lld - loss: %.4f - accuracy: %.4f - val_loss: %.4f - val_accuracy: %.4f\n",
           (long long)report->epoch, (long long)lk_trainer_plan(trainer)->epochs, lk_mean_value(report->train.loss),
           lk_mean_value(report->train.accuracy), lk_mean_value(report->val.loss), lk_mean_value(report->val.accuracy));
    return LK_OK;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static void set_arguments(int argc, char **argv, lk_train_config *config)
{
    check(lk_train_defaults(NULL, config));
    check(lk_options_defaults(arguments, ARGUMENT_COUNT, config));
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        lk_options_help(arguments, ARGUMENT_COUNT, stdout);
        exit(0);
    }
    check(lk_options_parse(arguments, ARGUMENT_COUNT, argc - 1, argv + 1, config, NULL));
    config->optimizer.name = "sgd";
    config->optimizer.schedule = "constant"; /* lr_schedule() changes the rate */
    config->data.augment = "shift=0.2,flip";
    config->data.normalize = LK_NORMALIZE_STANDARD;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    lk_train_config args, config;
    set_arguments(argc, argv, &args);
    config = args; /* without what the callbacks below do in the trainer's place */
    config.records.log_dir = NULL;
    config.stop.target_accuracy = config.stop.patience = -1;
    lk_trainer *trainer = lk_trainer_new_with(&config, create_model());
    check(trainer ? LK_OK : lk_error_status());

    print_throughput throughput = {.total_images = lk_trainer_plan(trainer)->train_samples};
    stop_at_accuracy stop = {.target = args.stop.target_accuracy, .patience = args.stop.patience};
    print_total_time total_time = {0};
    const lk_callback callbacks[] = {
        lk_callback_rate(lr_schedule, NULL),
        {.name = "epoch", .epoch_end = print_epoch},
        {.name = "throughput",
         .epoch_begin = throughput_epoch_begin,
         .epoch_end = throughput_epoch_end,
         .self = &throughput},
        {.name = "stop at accuracy", .epoch_end = stop_epoch_end, .train_end = stop_train_end, .self = &stop},
        {.name = "total time",
         .train_begin = total_time_train_begin,
         .epoch_end = total_time_epoch_end,
         .train_end = total_time_train_end,
         .self = &total_time},
        /* Last, so that its time does not count in the epoch times above. */
        lk_callback_tensorboard(args.records.log_dir),
    };
    for (size_t i = 0; i < sizeof callbacks / sizeof callbacks[0]; i++)
        check(lk_trainer_add(trainer, callbacks[i]));

    lk_train_result result;
    lk_metrics score;
    check(lk_trainer_fit(trainer, &result));
    check(lk_trainer_evaluate(trainer, &score));
    printf("Test loss: %.4f\n", lk_mean_value(score.loss));
    printf("Test accuracy: %.4f\n", lk_mean_value(score.accuracy));
    printf("digest %s\n", result.digest);
    lk_trainer_release(trainer);
    return 0;
}
