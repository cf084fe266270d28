/* --data-on: devices that hold the data set and prepare images themselves train, measure statistics, find what is not
 * finite and evaluate with the bits of images that the host prepares. On devices of the kind that
 * $LOCKSTEP_TEST_DEVICES names, cpu without it. */
#include "small_network.h"

#include <math.h>

/* "1xcpu", "2xcpu" */
static char specs[2][32];

static lk_train_config settings(void)
{
    lk_train_config config = small_training();
    config.limit_train = 29; /* batches of 12, 12 and 5 */
    config.limit_val = 7;
    config.batch_size = 12;
    config.shards = 3;
    config.base_lr = 0.05;
    config.augment = "shift=0.2,flip,crop=3,cutout=6";
    config.normalize = LK_NORMALIZE_STANDARD;
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

static outcome same_bits(lk_train_config config, train_fn run)
{
    config.devices = specs[0];
    config.data_on = LK_DATA_ON_HOST;
    outcome host = run(&config);
    for (int s = 0; s < 2; s++) {
        config.devices = specs[s];
        config.data_on = LK_DATA_ON_DEVICE;
        outcome device = run(&config);
        same(&host, &device);
        check_ledgers(&device);
    }
    return host;
}

static void test_programs(void **state)
{
    (void)state;
    outcome augmented = same_bits(settings(), train_small);
    lk_train_config config = settings();
    config.augment = NULL;
    config.normalize = LK_NORMALIZE_NONE;
    outcome plain = same_bits(config, train_small);
    assert_string_not_equal(plain.result.digest, augmented.result.digest);
}

static void test_eager(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.executor = LK_EXECUTOR_EAGER;
    same_bits(config, train_small);
}

static void test_batch_norm_over_the_batch(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.batch_norm = LK_BN_SYNC;
    config.accumulate = 2;
    same_bits(config, train_small);
}

static void test_precise_statistics(void **state)
{
    (void)state;
    for (int mode = LK_BN_SHARD; mode <= LK_BN_SYNC; mode++) {
        lk_train_config config = settings();
        config.precise_batch_norm = 2;
        config.batch_norm = mode;
        same_bits(config, train_small);
    }
}

static void test_micro_batches(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.model = "lenet";
    config.epochs = 1;
    config.micro_batch = 3;
    same_bits(config, train);
}

static void test_bf16(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.dtype = LK_PRECISION_BF16;
    same_bits(config, train_small);
}

/* --- what is not finite ------------------------------------------------------------------------------------------- */

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

/* The message of a training whose first layer overflows. */
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

static void test_nan_guard(void **state)
{
    (void)state;
    for (int mode = LK_BN_SHARD; mode <= LK_BN_SYNC; mode++) {
        char host[1024], device[1024];
        lk_train_config config = settings();
        config.batch_norm = mode;
        config.devices = specs[0];
        config.data_on = LK_DATA_ON_HOST;
        stop(&config, host, sizeof host);
        config.data_on = LK_DATA_ON_DEVICE;
        config.devices = specs[1];
        stop(&config, device, sizeof device);
        assert_string_equal(host, device);
        assert_non_null(strstr(host, " of the training set"));
    }
}

/* --- without training --------------------------------------------------------------------------------------------- */

static void test_evaluation(void **state)
{
    (void)state;
    lk_metrics metrics[2];
    float probabilities[2][7 * 10];
    for (int on = 0; on < 2; on++) {
        lk_train_config config = settings();
        config.devices = specs[on];
        config.data_on = on ? LK_DATA_ON_DEVICE : LK_DATA_ON_HOST;
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

/* Devices of the process have the data set in their memory anyway. */
static void test_plan(void **state)
{
    (void)state;
    bool apart = strstr(specs[0], "cuda") != NULL;
    lk_train_config config = settings();
    config.devices = specs[0];
    static const lk_data_on asked[] = {LK_DATA_ON_AUTO, LK_DATA_ON_HOST, LK_DATA_ON_DEVICE};
    const bool expected[] = {apart, false, true};
    for (int i = 0; i < 3; i++) {
        config.data_on = asked[i];
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
    for (int i = 0; i < 2; i++)
        snprintf(specs[i], sizeof specs[i], "%dx%s", i + 1, times ? times + 1 : "cpu");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_eager),
        cmocka_unit_test(test_batch_norm_over_the_batch),
        cmocka_unit_test(test_precise_statistics),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_nan_guard),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests_name("data on devices", tests, NULL, NULL);
}
