/* --data-on device: devices that hold the data set and prepare images give the same bits as images that the host
 * prepares, in training, statistics, the search for non-finite values, and evaluation. $LOCKSTEP_TEST_DEVICES names
 * another kind than cpu. */
#include "small_network.h"

#include <math.h>

/* one, two and four devices, such as "1xcpu" */
enum { SPECS = 3 };
static char specs[SPECS][32];

static lk_train_config settings(void)
{
    lk_train_config config = training_of(29, 7, 12, 3); /* batches of 12, 12 and 5 */
    config.optimizer.base_lr = 0.05;
    config.data.augment = "shift=0.2,flip,crop=3,cutout=6";
    config.data.normalize = LK_NORMALIZE_STANDARD;
    return config;
}

typedef outcome (*train_fn)(const lk_train_config *config);

static void check_ledgers(const outcome *out)
{
    for (int e = 0; e < out->n_epochs; e++) {
        assert_int_equal(out->epochs[e].train_ledger.used_once, 29);
        assert_int_equal(out->epochs[e].train_ledger.first_bad, -1);
        assert_int_equal(out->epochs[e].val_ledger.used_once, 7);
        assert_int_equal(out->epochs[e].val_ledger.first_bad, -1);
    }
}

/* On the first n_specs of the devices. */
static outcome same_bits_on(int n_specs, lk_train_config config, train_fn run)
{
    config.devices.spec = specs[0];
    config.data.memory = LK_DATA_ON_HOST;
    outcome host = run(&config);
    for (int s = 0; s < n_specs; s++) {
        config.devices.spec = specs[s];
        config.data.memory = LK_DATA_ON_DEVICE;
        outcome device = run(&config);
        same(&host, &device);
        check_ledgers(&device);
    }
    return host;
}

static outcome same_bits(lk_train_config config, train_fn run)
{
    return same_bits_on(2, config, run);
}

static void programs_give_the_hosts_bits(void **state)
{
    (void)state;
    outcome augmented = same_bits(settings(), train_small);
    lk_train_config config = settings();
    config.data.augment = NULL;
    config.data.normalize = LK_NORMALIZE_NONE;
    outcome plain = same_bits(config, train_small);
    assert_string_not_equal(plain.result.digest, augmented.result.digest);
}

static void every_augmentation_gives_the_hosts_bits(void **state)
{
    (void)state;
    static const char *const augments[] = {
        "vflip,rotate=20", "brightness=0.3,contrast=0.3,erase=0.5", "mixup=0.4", "rand=9",
        "shift=0.1,flip,vflip,rotate=10,crop=2,brightness=0.2,contrast=0.2,rand=5,cutout=4,erase=0.3,mixup=0.2"};
    for (size_t i = 0; i < sizeof augments / sizeof *augments; i++) {
        lk_train_config config = settings();
        config.data.augment = augments[i];
        config.batch_size = 16;
        config.devices.shards = 4;
        same_bits_on(SPECS, config, train_small);
    }
}

static void the_eager_executor_gives_the_hosts_bits(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.execution.executor = LK_EXECUTOR_EAGER;
    same_bits(config, train_small);
}

static void batch_norm_over_the_batch_gives_the_hosts_bits(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.batch_norm.mode = LK_BN_SYNC;
    config.accumulate = 2;
    same_bits(config, train_small);
}

static void precise_statistics_have_the_hosts_bits(void **state)
{
    (void)state;
    for (int mode = LK_BN_SHARD; mode <= LK_BN_SYNC; mode++) {
        lk_train_config config = settings();
        config.batch_norm.precise = 2;
        config.batch_norm.mode = mode;
        same_bits(config, train_small);
    }
}

static void micro_batches_give_the_hosts_bits(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.model = "lenet";
    config.epochs = 1;
    config.execution.micro_batch = 3;
    same_bits(config, train);
}

static void bf16_gives_the_hosts_bits(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.execution.dtype = LK_PRECISION_BF16;
    same_bits(config, train_small);
}

/* --- values that are not finite ----------------------------------------------------------------------------------- */

static void fill_first_variable(lk_trainer *trainer, float value)
{
    for (int r = 0; r < lk_strategy_num_replicas(lk_trainer_strategy(trainer)); r++) {
        float values[1024];
        lk_tensor *variable = lk_trainer_variables(trainer, r)[0];
        int64_t count = lk_tensor_count(variable);
        assert_true(count <= 1024);
        for (int64_t i = 0; i < count; i++)
            values[i] = value;
        assert_ok(lk_tensor_write(variable, values, (size_t)count * sizeof *values));
    }
}

/* Writes the message with which a training ends whose first layer overflows. */
static void stop(const lk_train_config *config, char *message, size_t size)
{
    lk_train_result result;
    lk_trainer *trainer = small_trainer(config);
    fill_first_variable(trainer, 3e38f);
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_NUMERIC);
    snprintf(message, size, "%s", lk_error_message());
    lk_error_clear();
    lk_trainer_release(trainer);
}

static void non_finite_values_give_the_hosts_message(void **state)
{
    (void)state;
    for (int mode = LK_BN_SHARD; mode <= LK_BN_SYNC; mode++) {
        char host[1024], device[1024];
        lk_train_config config = settings();
        config.batch_norm.mode = mode;
        config.devices.spec = specs[0];
        config.data.memory = LK_DATA_ON_HOST;
        stop(&config, host, sizeof host);
        config.data.memory = LK_DATA_ON_DEVICE;
        config.devices.spec = specs[1];
        stop(&config, device, sizeof device);
        assert_string_equal(host, device);
        assert_non_null(strstr(host, " of the training set"));
    }
}

/* --- without training --------------------------------------------------------------------------------------------- */

static void evaluation_gives_the_hosts_bits(void **state)
{
    (void)state;
    lk_metrics metrics[2];
    float probabilities[2][7 * 10];
    for (int on = 0; on < 2; on++) {
        lk_train_config config = settings();
        config.devices.spec = specs[on];
        config.data.memory = on ? LK_DATA_ON_DEVICE : LK_DATA_ON_HOST;
        lk_trainer *trainer = small_trainer(&config);
        lk_dataset *val = lk_dataset_retain((lk_dataset *)(uintptr_t)lk_trainer_dataset(trainer, LK_SPLIT_TEST));
        assert_ok(lk_trainer_evaluate(trainer, &metrics[on]));
        assert_ok(lk_trainer_predict(trainer, val, probabilities[on]));
        lk_dataset_release(val);
        lk_trainer_release(trainer);
    }
    same_metrics(&metrics[0], &metrics[1]);
    assert_memory_equal(probabilities[0], probabilities[1], sizeof probabilities[0]);
}

/* CPU devices can always read the data set in the process's memory. */
static void the_plan_says_where_the_data_is(void **state)
{
    (void)state;
    bool apart = strstr(specs[0], "cuda") != NULL;
    lk_train_config config = settings();
    config.devices.spec = specs[0];
    static const lk_data_on asked[] = {LK_DATA_ON_AUTO, LK_DATA_ON_HOST, LK_DATA_ON_DEVICE};
    const bool expected[] = {apart, false, true};
    for (int i = 0; i < 3; i++) {
        config.data.memory = asked[i];
        lk_trainer *trainer = small_trainer(&config);
        assert_int_equal(lk_trainer_plan(trainer)->data_on_devices, expected[i]);
        assert_false(lk_trainer_plan(trainer)->data_too_large);
        lk_trainer_release(trainer);
    }
}

int main(void)
{
    const char *devices = getenv("LOCKSTEP_TEST_DEVICES");
    const char *times = devices ? strchr(devices, 'x') : NULL;
    for (int i = 0; i < SPECS; i++)
        snprintf(specs[i], sizeof specs[i], "%dx%s", 1 << i, times ? times + 1 : "cpu");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_give_the_hosts_bits),
        cmocka_unit_test(every_augmentation_gives_the_hosts_bits),
        cmocka_unit_test(the_eager_executor_gives_the_hosts_bits),
        cmocka_unit_test(batch_norm_over_the_batch_gives_the_hosts_bits),
        cmocka_unit_test(precise_statistics_have_the_hosts_bits),
        cmocka_unit_test(micro_batches_give_the_hosts_bits),
        cmocka_unit_test(bf16_gives_the_hosts_bits),
        cmocka_unit_test(non_finite_values_give_the_hosts_message),
        cmocka_unit_test(evaluation_gives_the_hosts_bits),
        cmocka_unit_test(the_plan_says_where_the_data_is),
    };
    return cmocka_run_group_tests_name("data on devices", tests, NULL, NULL);
}
