/* Every reference model has the same bits in every variable and metric on one, two and three devices, with batch-norm
 * per shard and over the batch, which is one group by default. */
#include "training.h"

/* The last batch is smaller, and with three shards some have one sample more. */
static lk_train_config few_samples(const char *model)
{
    lk_train_config config = small_training();
    config.model = model;
    config.data.limit_train = 7;
    config.data.limit_val = 3;
    config.batch_size = 5;
    config.devices.shards = 3;
    config.epochs = 1;
    config.optimizer.momentum = -1;
    return config;
}

static outcome same_on_devices(lk_train_config config, const char *const *specs, int n)
{
    outcome first;
    for (int s = 0; s < n; s++) {
        config.devices.spec = specs[s];
        outcome out = train(&config);
        if (s == 0)
            first = out;
        else
            same(&first, &out);
    }
    return first;
}

static const char *const one_two_three[] = {"1xcpu", "2xcpu", "3xcpu"};

static void keras_cnn(void **state)
{
    (void)state;
    lk_train_config config = few_samples("keras-cnn");
    config.epochs = 2;
    outcome first = same_on_devices(config, one_two_three, 3);
    config.optimizer.base_lr = 0.002;
    outcome other = train(&config);
    assert_string_not_equal(first.result.digest, other.result.digest);
}

static void resnet18(void **state)
{
    (void)state;
    lk_train_config config = few_samples("resnet18");
    outcome group = same_on_devices(config, one_two_three, 3);
    config.batch_norm.mode = LK_BN_SHARD;
    outcome shard = same_on_devices(config, one_two_three, 3);
    config.batch_norm.mode = LK_BN_SYNC;
    outcome sync = same_on_devices(config, one_two_three, 3);
    assert_string_not_equal(shard.result.digest, sync.result.digest);
    assert_string_equal(group.result.digest, sync.result.digest);
}

/* It has 17 million parameters: train one step, without evaluation. */
static lk_train_config wide_resnet(void)
{
    lk_train_config config = few_samples("wrn-16-10");
    config.data.limit_train = 3;
    config.data.limit_val = 0;
    config.batch_size = 3;
    config.devices.shards = 2;
    config.data.augment = "shift=0.2,flip";
    config.data.normalize = LK_NORMALIZE_STANDARD;
    return config;
}

static void wrn_16_10(void **state)
{
    (void)state;
    lk_train_config config = wide_resnet();
    outcome group = same_on_devices(config, one_two_three, 2);
    config.batch_norm.mode = LK_BN_SHARD;
    outcome shard = same_on_devices(config, one_two_three, 2);
    assert_string_not_equal(shard.result.digest, group.result.digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keras_cnn),
        cmocka_unit_test(resnet18),
        cmocka_unit_test(wrn_16_10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
