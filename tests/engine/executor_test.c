/* For every reference model, in training and evaluation, a program without fusion gives the eager executor's bits. With
 * fusion it gives nearly those, and the same bits on any number of devices. */
#include "executors.h"

/* Shards have eight images and more, which kernels for few channels compute together. */
static void lenet(void **state)
{
    (void)state;
    executors_agree(few_samples("lenet", 52, 32));
}

static void keras_cnn(void **state)
{
    (void)state;
    executors_agree(few_samples("keras-cnn", 52, 32));
}

static void resnet18(void **state)
{
    (void)state;
    executors_agree(few_samples("resnet18", 5, 4));
}

/* This network has dropout, whose random numbers depend on the step; those of augmentation depend on the epoch. */
static void wrn_16_10(void **state)
{
    (void)state;
    lk_train_config config = few_samples("wrn-16-10", 3, 2);
    config.data.limit_val = 0;
    config.data.augment = "shift=0.2,flip";
    executors_agree(config);
}

static void accumulation_and_label_smoothing(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 100, 32);
    config.accumulate = 2;
    config.optimizer.label_smoothing = 0.1;
    config.checks.top_k = 3;
    executors_agree(config);
}

/* All kinds of operators of the reference models, in bf16. */
static void bf16(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 52, 32);
    config.execution.dtype = LK_PRECISION_BF16;
    config.optimizer.label_smoothing = 0.1;
    executors_agree(config);
    config = few_samples("keras-cnn", 20, 16);
    config.execution.dtype = LK_PRECISION_BF16;
    executors_agree(config);
    config = few_samples("resnet18", 3, 3);
    config.execution.dtype = LK_PRECISION_BF16;
    config.data.limit_val = 0;
    executors_agree(config);
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
