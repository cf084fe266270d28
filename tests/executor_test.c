/* Executors: a program without fusion gives the eager executor's bits, for every reference model, in training and
 * evaluation; with fusion it gives nearly those, and the same ones on any number of devices. */
#include "executors.h"

/* Shards of eight images and more, which small-channel kernels take together. */
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

/* Dropout is keyed by the step, augmentation by the epoch. */
static void wrn_16_10(void **state)
{
    (void)state;
    lk_train_config config = few_samples("wrn-16-10", 3, 2);
    config.limit_val = 0;
    config.augment = "shift=0.2,flip";
    executors_agree(config);
}

static void accumulation_and_label_smoothing(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 100, 32);
    config.accumulate = 2;
    config.label_smoothing = 0.1;
    config.top_k = 3;
    executors_agree(config);
}

/* Every kind of operator that the reference models have, on bf16. */
static void bf16(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 52, 32);
    config.dtype = LK_PRECISION_BF16;
    config.label_smoothing = 0.1;
    executors_agree(config);
    config = few_samples("keras-cnn", 20, 16);
    config.dtype = LK_PRECISION_BF16;
    executors_agree(config);
    config = few_samples("resnet18", 3, 3);
    config.dtype = LK_PRECISION_BF16;
    config.limit_val = 0;
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
