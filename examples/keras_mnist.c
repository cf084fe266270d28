/* Training on several devices with fit, after TensorFlow's tutorial "Distributed training with Keras": a small network
 * for MNIST, Adam, callbacks, an evaluation and a few predictions.
 *
 *   keras_mnist [DATA [EPOCHS [IMAGES [DEVICES]]]]
 *
 * DATA: mnist (default), fashion-mnist or synthetic. EPOCHS: default 12. IMAGES: train and test on the first IMAGES;
 * 0: all (default). DEVICES: 2xcpu, … (default: all cores). Records for TensorBoard go to ./logs.
 *
 * A batch is always cut into SHARDS parts, so the digest of the trained variables is the same for any number of
 * devices. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

enum { SHARDS = 4, BATCH_SIZE = 64, CLASSES = 10, PREDICTIONS = 8 };

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "keras_mnist: %s\n", lk_error_message());
    exit(1);
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static lk_model *create_model(void)
{
    lk_layer *layers = LK_SEQUENTIAL(lk_layer_conv2d(32, 3, NULL), lk_layer_activation(LK_RELU),
                                     lk_layer_max_pool(2, NULL), lk_layer_flatten(), lk_layer_dense(64, NULL),
                                     lk_layer_activation(LK_RELU), lk_layer_dense(CLASSES, NULL));
    return lk_model_build("keras-mnist", layers, (lk_model_input){1, 28, 28, CLASSES});
}

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

/* Decays the learning rate. `epoch` is a fraction from 0: 2.5 is the middle of the third epoch. */
static double decay(void *user, double epoch, double rate)
{
    (void)user, (void)rate;
    if (epoch < 3)
        return 1e-3;
    if (epoch < 7)
        return 1e-4;
    return 1e-5;
}

/* A callback that prints loss, accuracy and learning rate at the end of each epoch. */
static lk_status print_rate(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)self, (void)trainer, (void)stop;
    printf("Epoch %lld: loss %.4f, accuracy %.4f\n", (long long)report->epoch, lk_mean_value(report->train.loss),
           lk_mean_value(report->train.accuracy));
    printf("Learning rate for epoch %lld is %g\n", (long long)report->epoch, report->rate);
    fflush(stdout);
    return LK_OK;
}

static void add_callbacks(lk_trainer *trainer)
{
    check(lk_trainer_add(trainer, lk_callback_tensorboard("logs")));
    check(lk_trainer_add(trainer, lk_callback_rate(decay, NULL)));
    check(lk_trainer_add(trainer, (lk_callback){.name = "print rate", .epoch_end = print_rate}));
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static void evaluate(lk_trainer *trainer)
{
    lk_metrics metrics;
    check(lk_trainer_evaluate(trainer, &metrics));
    printf("Eval loss: %.4f, Eval accuracy: %.4f\n", lk_mean_value(metrics.loss), lk_mean_value(metrics.accuracy));
}

/* Prints predictions for the first test images. */
static void predict(lk_trainer *trainer, const char *data)
{
    float probabilities[PREDICTIONS][CLASSES];
    lk_dataset *images;
    check(lk_dataset_open(data, LK_SPLIT_TEST, &(lk_dataset_opts){.limit = PREDICTIONS}, &images));
    check(lk_trainer_predict(trainer, images, &probabilities[0][0]));
    for (int i = 0; i < PREDICTIONS; i++) {
        int likeliest = 0;
        for (int c = 1; c < CLASSES; c++)
            if (probabilities[i][c] > probabilities[i][likeliest])
                likeliest = c;
        printf("Image %d: class %d with probability %.3f; its label is %d\n", i, likeliest,
               (double)probabilities[i][likeliest], lk_dataset_labels(images)[i]);
    }
    lk_dataset_release(images);
}

static long number(const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text && *end == '\0' && value >= least && value <= most)
        return value;
    fprintf(stderr, "keras_mnist: '%s': a number from %ld to %ld is needed\n", text, least, most);
    exit(2);
}

int main(int argc, char **argv)
{
    lk_train_config config;
    lk_train_result result;
    check(lk_train_defaults(NULL, &config));
    config.data.name = argc > 1 ? argv[1] : "mnist";
    config.epochs = argc > 2 ? number(argv[2], 1, 1000) : 12;
    long images = argc > 3 ? number(argv[3], 0, 60000) : 0;
    if (images > 0)
        config.data.limit_train = config.data.limit_val = images;
    config.devices.spec = argc > 4 ? argv[4] : NULL;
    config.devices.shards = SHARDS;
    config.batch_size = BATCH_SIZE; /* over all devices together */
    config.optimizer.name = "adam";
    config.optimizer.schedule = "constant"; /* decay() changes the rate */
    config.optimizer.base_lr = 1e-3;

    lk_trainer *trainer = lk_trainer_new_with(&config, create_model());
    check(trainer ? LK_OK : lk_error_status());
    printf("Number of devices: %d\n", lk_strategy_num_replicas(lk_trainer_strategy(trainer)));
    add_callbacks(trainer);
    check(lk_trainer_fit(trainer, &result));
    evaluate(trainer);
    predict(trainer, config.data.name);
    printf("digest %s\n", result.digest);
    lk_trainer_release(trainer);
    return 0;
}
