/* Executors: a program without fusion gives the eager executor's bits, for every reference model, in training and
 * evaluation; with fusion it gives nearly those, and the same ones on any number of devices. */
#include "training.h"

#include <math.h>

/* Two steps, the second with another number of samples. */
static lk_train_config few_samples(const char *model, int64_t samples, int64_t batch_size)
{
    lk_train_config config = small_training();
    config.model = model;
    config.limit_train = samples;
    config.limit_val = 3;
    config.batch_size = batch_size;
    config.shards = 2;
    config.epochs = 1;
    config.momentum = -1;
    config.devices = "1xcpu";
    return config;
}

static double loss_of(const outcome *out)
{
    return out->epochs[0].train.loss.sum / (double)out->epochs[0].train.loss.count;
}

/* Fusion leaves out roundings to bf16, each of 2^-9 of a value. */
static void check(lk_train_config config)
{
    double most = config.dtype == LK_PRECISION_BF16 ? 1e-2 : 1e-5;
    config.executor = LK_EXECUTOR_EAGER;
    outcome eager = train(&config);
    config.executor = LK_EXECUTOR_PROGRAM;
    config.fuse = LK_FUSE_OFF;
    outcome program = train(&config);
    same(&eager, &program);
    config.fuse = LK_FUSE_ON;
    outcome fused = train(&config);
    assert_true(fabs(loss_of(&fused) - loss_of(&eager)) <= most * fabs(loss_of(&eager)));
    config.devices = "2xcpu";
    outcome two = train(&config);
    same(&fused, &two);
}

/* Shards of eight images and more, which small-channel kernels take together. */
static void lenet(void **state)
{
    (void)state;
    check(few_samples("lenet", 52, 32));
}

static void keras_cnn(void **state)
{
    (void)state;
    check(few_samples("keras-cnn", 52, 32));
}

static void resnet18(void **state)
{
    (void)state;
    check(few_samples("resnet18", 7, 4));
}

/* Dropout is keyed by the step, augmentation by the epoch. */
static void wrn_16_10(void **state)
{
    (void)state;
    lk_train_config config = few_samples("wrn-16-10", 4, 2);
    config.limit_val = 0;
    config.augment = "shift=0.2,flip";
    check(config);
}

static void accumulation_and_label_smoothing(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 100, 32);
    config.accumulate = 2;
    config.label_smoothing = 0.1;
    config.top_k = 3;
    check(config);
}

/* Every kind of operator that the reference models have, on bf16. */
static void bf16(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 52, 32);
    config.dtype = LK_PRECISION_BF16;
    config.label_smoothing = 0.1;
    check(config);
    config = few_samples("keras-cnn", 20, 16);
    config.dtype = LK_PRECISION_BF16;
    check(config);
    config = few_samples("resnet18", 3, 3);
    config.dtype = LK_PRECISION_BF16;
    config.limit_val = 0;
    check(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet),
        cmocka_unit_test(keras_cnn),
        cmocka_unit_test(resnet18),
        cmocka_unit_test(wrn_16_10),
        cmocka_unit_test(accumulation_and_label_smoothing),
        cmocka_unit_test(bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
