/* --recompute changes no bit of any reference model, on one and two devices, in both dtypes. */
#include "executors.h"

/* Compares on two devices. Networks that take long are not trained on one as well. */
static outcome check(lk_train_config config)
{
    outcome kept = train(&config);
    config.execution.recompute = true;
    config.devices.spec = "2xcpu";
    outcome remade = train(&config);
    same(&kept, &remade);
    return kept;
}

static void check_on_one_too(lk_train_config config)
{
    outcome kept = check(config);
    config.execution.recompute = true;
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

/* A second training reuses the memory of the first one: recomputed tensors are returned to the allocator. */
static void trainings_reuse_memory(void **state)
{
    (void)state;
    lk_train_config config = few_samples("lenet", 32, 16);
    config.data.limit_val = 0;
    config.epochs = 2;
    config.execution.recompute = true;
    outcome first = train(&config);
    for (int i = 0; i < 3; i++) {
        outcome next = train(&config);
        same(&first, &next);
    }
}

/* Without fusion as well: then there are more values to keep or recompute. */
static void resnet18(void **state)
{
    (void)state;
    lk_train_config config = few_samples("resnet18", 5, 4);
    check_on_one_too(config);
    config.execution.fuse = LK_FUSE_OFF;
    check(config);
}

/* It has dropout, which is recomputed, and running statistics, which must be updated only once. */
static void wrn_16_10(void **state)
{
    (void)state;
    lk_train_config config = few_samples("wrn-16-10", 3, 2);
    config.data.limit_val = 0;
    config.data.augment = "shift=0.2,flip";
    check(config);
}

static void bf16(void **state)
{
    (void)state;
    lk_train_config config = few_samples("resnet18", 3, 3);
    config.execution.dtype = LK_PRECISION_BF16;
    config.data.limit_val = 0;
    check(config);
}

static void training_without_programs_is_refused(void **state)
{
    (void)state;
    lk_train_config config = few_samples("resnet18", 7, 4);
    config.execution.recompute = true;
    config.execution.executor = LK_EXECUTOR_EAGER;
    is_refused(&config, "--recompute: must be with --executor program, not --executor eager");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet),
        cmocka_unit_test(keras_cnn),
        cmocka_unit_test(trainings_reuse_memory),
        cmocka_unit_test(resnet18),
        cmocka_unit_test(wrn_16_10),
        cmocka_unit_test(bf16),
        cmocka_unit_test(training_without_programs_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
