/* --strategy central-storage gives the same bits as mirrored, wherever the variables are, and keeps no optimizer state
 * on devices that only compute. $LOCKSTEP_TEST_KIND names another kind of device, for instance "cuda:0". */
#include "small_network.h"

#include "train/trainer.h"

static char specs[3][32];
static const char *other; /* a storing device that is not the default */
static bool is_cpu;

static lk_train_config settings(void)
{
    lk_train_config config = training_of(29, 7, 12, 3); /* batches of 12, 12 and 5 */
    config.optimizer.base_lr = 0.05;
    config.optimizer.momentum = 0.9;
    config.devices.strategy = "central-storage";
    return config;
}

static void same_as_mirrored(lk_train_config config)
{
    config.devices.spec = specs[1];
    config.devices.strategy = "mirrored";
    outcome mirrored = train_small(&config);
    config.devices.strategy = "central-storage";
    for (int s = 0; s < 4; s++) {
        config.devices.spec = specs[s < 3 ? s : 1];
        config.devices.storage = s < 3 ? NULL : other;
        outcome central = train_small(&config);
        same(&mirrored, &central);
    }
}

static void sgd_has_the_bits_of_mirrored(void **state)
{
    (void)state;
    same_as_mirrored(settings());
}

static void adam_has_the_bits_of_mirrored(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.optimizer.name = "adam";
    config.optimizer.momentum = -1;
    config.optimizer.base_lr = 0.01;
    config.optimizer.clip_norm = 0.5;
    config.accumulate = 2;
    config.devices.bucket_mb = 0.001;
    same_as_mirrored(config);
}

static void lars_in_bf16_has_the_bits_of_mirrored(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.optimizer.name = "lars";
    config.execution.dtype = LK_PRECISION_BF16;
    config.batch_norm.precise = 2;
    same_as_mirrored(config);
}

static void batch_norm_over_the_batch(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.batch_norm.mode = LK_BN_SYNC;
    same_as_mirrored(config);
}

static lk_trainer *run_steps(const lk_train_config *config, char digest[33])
{
    lk_trainer *trainer = small_trainer(config);
    assert_ok(lk_trainer_run(trainer, 8));
    assert_ok(lk_trainer_digest(trainer, 0, digest));
    same_replicas(trainer, digest);
    return trainer;
}

static bool last_update_was_skipped(const lk_trainer *trainer)
{
    double skipped;
    assert_ok(lk_tensor_item(lk_optimizer_skipped(lk_replicas_optimizer(trainer->replicas, 0)), &skipped));
    return skipped != 0;
}

static void skipped_updates(void **state)
{
    (void)state;
    char expected[33], digest[33];
    lk_train_config config = settings();
    config.checks.nan_guard = LK_NAN_GUARD_SKIP;
    config.optimizer.base_lr = 1e6;
    config.optimizer.momentum = 0.999;
    config.devices.spec = specs[1];
    config.devices.strategy = "mirrored";
    lk_trainer_release(run_steps(&config, expected));
    config.devices.strategy = "central-storage";
    for (int s = 0; s < 3; s++) {
        config.devices.spec = specs[s];
        lk_trainer *trainer = run_steps(&config, digest);
        assert_string_equal(digest, expected);
        assert_true(last_update_was_skipped(trainer));
        lk_trainer_release(trainer);
    }
}

/* --- where memory is ---------------------------------------------------------------------------------------------- */

static int64_t held(const lk_device *device)
{
    int64_t now, peak;
    lk_device_memory(device, &now, &peak);
    return now;
}

/* Packed parameters, with the gaps between them, take a little more. */
static int64_t parameter_bytes(const lk_trainer *trainer)
{
    return trainer->plan.parameters * (int64_t)sizeof(float);
}

static void only_the_storing_device_has_the_optimizers_state(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.optimizer.name = "adam";
    config.optimizer.momentum = -1;
    config.devices.spec = specs[1];
    config.model = "lenet"; /* its parameters take most of the memory */
    lk_trainer *trainer = new_trainer(&config);
    lk_device *storage = lk_strategy_storage(trainer->strategy), *computes = trainer->devices[1];
    int64_t one = parameter_bytes(trainer);
    assert_ok(lk_wait_all());
    assert_ptr_not_equal(storage, computes);
    assert_true(held(storage) >= 4 * one); /* parameters, gradients, m, v */
    if (is_cpu)
        assert_true(held(computes) < one / 4); /* read in place */
    else
        assert_in_range(held(computes), one, one + one / 4); /* a copy of the parameters */
    assert_ok(lk_trainer_run(trainer, 3));
    for (int i = 0; i < 2; i++) {
        lk_tensor *slot = lk_optimizer_state(lk_replicas_optimizer(trainer->replicas, 1), i, NULL);
        assert_ptr_equal(lk_tensor_device(slot), storage);
    }
    lk_trainer_release(trainer);

    config.devices.strategy = "mirrored";
    trainer = new_trainer(&config);
    assert_null(lk_strategy_storage(trainer->strategy));
    assert_ok(lk_wait_all());
    assert_true(held(trainer->devices[1]) >= 4 * one);
    lk_trainer_release(trainer);
}

/* --- hand-written loops ------------------------------------------------------------------------------------------- */

static void replicas_need_no_optimizer(void **state)
{
    (void)state;
    lk_device *devices[3];
    int k;
    char one[33], another[33];
    lk_model *model = small_network();
    assert_ok(lk_devices_open(specs[2], devices, 3, &k));
    lk_strategy *strategy = lk_strategy_new("central-storage", devices, k);
    assert_non_null(strategy);
    expect_error(lk_strategy_set_storage(strategy, NULL), LK_ERR_ARGUMENT,
                 "strategy central-storage: the storing device is NULL");
    lk_replicas *replicas = lk_replicas_new(strategy, model, NULL, 7);
    assert_non_null(replicas);
    assert_int_equal(lk_strategy_owners(strategy), 1);
    for (int r = 0; r < k; r++) {
        assert_ok(lk_replicas_digest(replicas, r, r ? another : one));
        assert_ptr_equal(lk_tensor_device(lk_replicas_variables(replicas, r)[0]), devices[r]);
        if (r)
            assert_string_equal(another, one);
    }
    assert_null(lk_replicas_optimizer(replicas, 0));
    lk_replicas_release(replicas);
    lk_strategy_release(strategy);
    lk_devices_release(devices, k);
    lk_model_release(model);
}

int main(void)
{
    const char *kind = getenv("LOCKSTEP_TEST_KIND");
    is_cpu = !kind;
    other = is_cpu ? "cpu:1" : kind;
    for (int k = 0; k < 3; k++)
        snprintf(specs[k], sizeof specs[k], "%dx%s", k + 1, is_cpu ? "cpu" : kind);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_has_the_bits_of_mirrored),
        cmocka_unit_test(adam_has_the_bits_of_mirrored),
        cmocka_unit_test(lars_in_bf16_has_the_bits_of_mirrored),
        cmocka_unit_test(batch_norm_over_the_batch),
        cmocka_unit_test(skipped_updates),
        cmocka_unit_test(only_the_storing_device_has_the_optimizers_state),
        cmocka_unit_test(replicas_need_no_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
