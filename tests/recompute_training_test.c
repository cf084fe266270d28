/* --recompute changes no bit: of every reference model, on one device and on two, in both dtypes. */
#include "executors.h"

/* On two devices; networks that take long are not trained on one as well. */
static outcome check(lk_train_config config)
{
    outcome kept = train(&config);
    config.recompute = true;
    config.devices = "2xcpu";
    outcome remade = train(&config);
    same(&kept, &remade);
    return kept;
}

static void check_on_one_too(lk_train_config config)
{
    outcome kept = check(config);
    config.recompute = true;
    outcome remade = train(&config);
    same(&kept, &remade);
}

static void lenet(void **state)
{
    (void)state;
    check_on_one_too(few_samples("lenet", 52, 32));
}

static void keras_cnn(void **state)
{
    (void)state;
    check_on_one_too(few_samples("keras-cnn", 52, 32));
}

/* What one training has freed another takes: tensors made by recomputation go back to where tensors come from. */
static void one_after_the_other(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 32, 16);
    config.limit_val = 0;
    config.epochs = 2;
    config.recompute = true;
    outcome first = train(&config);
    for (int i = 0; i < 3; i++) {
        outcome next = train(&config);
        same(&first, &next);
    }
}

/* Without fusion too, where there are more values to keep or make again. */
static void resnet18(void **state)
{
    (void)state;
    lk_train_config config = few_samples("resnet18", 5, 4);
    check_on_one_too(config);
    config.fuse = LK_FUSE_OFF;
    check(config);
}

/* Dropout, which is made again, and running statistics, which are updated once. */
static void wrn_16_10(void **state)
{
    (void)state;
    lk_train_config config = few_samples("wrn-16-10", 3, 2);
    config.limit_val = 0;
    config.augment = "shift=0.2,flip";
    check(config);
}

static void bf16(void **state)
{
    (void)state;
    lk_train_config config = few_samples("resnet18", 3, 3);
    config.dtype = LK_PRECISION_BF16;
    config.limit_val = 0;
    check(config);
}

static void what_has_no_program_is_refused(void **state)
{
    (void)state;
    lk_train_config config = few_samples("resnet18", 7, 4);
    config.recompute = true;
    config.executor = LK_EXECUTOR_EAGER;
    is_refused(&config, "--recompute: must be with --executor program, not --executor eager");
    config.executor = LK_EXECUTOR_PROGRAM;
    config.batch_norm = LK_BN_SYNC;
    is_refused(&config, "--recompute: must be with --bn shard, not --bn sync");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet),
        cmocka_unit_test(keras_cnn),
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(resnet18),
        cmocka_unit_test(wrn_16_10),
        cmocka_unit_test(bf16),
        cmocka_unit_test(what_has_no_program_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
