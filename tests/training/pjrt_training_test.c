/* Trains on the devices of a real PJRT plug-in, that of $LOCKSTEP_PJRT_TEST_PLUGIN, with every number of them. */
#include "small_network.h"
#include "base/folder_testing.h"

#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/pjrt.h"

#include <math.h>

static int devices; /* of the plug-in */

/* Two epochs of two batches in four shards; the last batch has three samples, so one shard is empty. */
static lk_train_config usual(void)
{
    lk_train_config config = training_of(35, 21, 32, 4);
    config.optimizer.momentum = 0.9;
    config.optimizer.base_lr = 0.05;
    config.seed = 11;
    config.data.augment = "shift=0.1,flip";
    return config;
}

/* Trains on 1 to 4 devices; the outcomes must be the same. */
static outcome train_on_any_of_them(lk_train_config config)
{
    char spec[32];
    outcome first;
    for (int d = 1; d <= devices && d <= 4; d++) {
        snprintf(spec, sizeof spec, "%dxpjrt", d);
        config.devices.spec = spec;
        outcome out = train_small(&config);
        if (d == 1)
            first = out;
        else
            same(&first, &out);
    }
    return first;
}

static void close_to(const outcome *a, const outcome *b, double tolerance)
{
    for (int e = 0; e < a->n_epochs; e++) {
        double x = a->epochs[e].train.loss.sum, y = b->epochs[e].train.loss.sum;
        if (!(fabs(x - y) <= tolerance * fabs(y)))
            fail_msg("epoch %d: a loss of %.9g, where it should be %.9g", e + 1, x, y);
    }
}

static outcome train_on(const char *spec, lk_train_config config)
{
    config.devices.spec = spec;
    return train_small(&config);
}

/* Batch-norm of each shard by itself: its pass is one module. */
static void shards_by_themselves_give_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SHARD;
    outcome here = train_on_any_of_them(config), cpu = train_on("2xcpu", config);
    close_to(&here, &cpu, 1e-4);
}

/* Batch-norm over the shards of several devices: every operator is a module. */
static void groups_of_shards_give_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SYNC;
    config.optimizer.clip_norm = 1;
    outcome here = train_on_any_of_them(config), cpu = train_on("2xcpu", config);
    close_to(&here, &cpu, 1e-4);
}

static void bf16_gives_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SHARD;
    config.execution.dtype = LK_PRECISION_BF16;
    outcome here = train_on_any_of_them(config), cpu = train_on("2xcpu", config);
    close_to(&here, &cpu, 2e-2);
}

/* The device may read the data set itself, and a strategy may leave the variables on a core. */
static void data_and_variables_may_be_elsewhere(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SHARD;
    config.data.memory = LK_DATA_ON_HOST;
    outcome host = train_on("2xpjrt", config);
    config.data.memory = LK_DATA_ON_DEVICE;
    outcome device = train_on("2xpjrt", config);
    same(&host, &device);
    config.devices.strategy = "tpu";
    outcome tpu = train_on("2xpjrt", config), all = train_on(NULL, config);
    same(&device, &tpu);
    same(&device, &all);
}

/* Each device updates a slice of the parameters; LARS has segments that two slices share. */
static void devices_share_the_state_of_the_optimizer(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"adam", "lars"};
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SHARD;
    config.optimizer.clip_norm = 1;
    for (int o = 0; o < 2; o++) {
        config.optimizer.name = optimizers[o];
        config.optimizer.momentum = o == 0 ? 0 : 0.9;
        config.devices.optimizer_state = 0;
        config.devices.strategy = NULL;
        outcome mirrored = train_on("1xpjrt", config);
        config.devices.optimizer_state = 1;
        outcome sharded = train_on("3xpjrt", config);
        config.devices.strategy = "tpu";
        outcome tpu = train_on("2xpjrt", config);
        same(&mirrored, &sharded);
        same(&mirrored, &tpu);
        assert_string_equal(sharded.result.state_digest, mirrored.result.state_digest);
        assert_string_equal(tpu.result.state_digest, mirrored.result.state_digest);
    }
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static lk_status interrupt_after_three_steps(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self, (void)stop;
    if ((report->epoch - 1) * report->steps + report->step == 3)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

/* Begins the training and interrupts it, or ends it: goes on from the checkpoint, if there is one. */
static lk_train_result train_a_part(const char *spec, lk_train_config config, bool to_the_end, bool resume)
{
    lk_train_result result;
    config.devices.spec = spec;
    config.checkpoints.dir = test_dir;
    config.checkpoints.resume = config.checkpoints.override = resume; /* another kind of device gives other bits */
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_add(trainer, lk_callback_checkpoint(test_dir, &(lk_checkpoint_opts){.keep = 2})));
    if (!to_the_end)
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt_after_three_steps}));
    lk_status status = lk_trainer_fit(trainer, &result);
    if (status != (to_the_end ? LK_OK : LK_ERR_INTERRUPTED))
        fail_msg("%s", lk_error_message());
    lk_error_clear();
    lk_trainer_release(trainer);
    return result;
}

static lk_train_result train_in_two_parts(const char *first, const char *then, const lk_train_config *config)
{
    empty_test_dir();
    train_a_part(first, *config, false, false);
    return train_a_part(then, *config, true, true);
}

static void checkpoints_go_to_other_devices(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SHARD;
    lk_train_result whole = train_a_part("2xpjrt", config, true, false);
    lk_train_result parts = train_in_two_parts("1xpjrt", "3xpjrt", &config);
    assert_string_equal(parts.digest, whole.digest);
    assert_string_equal(parts.state_digest, whole.state_digest);
    static const char *const ways[][2] = {{"2xpjrt", "2xcpu"}, {"2xcpu", "2xpjrt"}};
    for (int i = 0; i < 2; i++) {
        lk_train_result other = train_in_two_parts(ways[i][0], ways[i][1], &config);
        double x = other.val.loss.sum, y = whole.val.loss.sum;
        assert_true(fabs(x - y) <= 1e-3 * fabs(y));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_by_themselves_give_equal_bits),
        cmocka_unit_test(groups_of_shards_give_equal_bits),
        cmocka_unit_test(bf16_gives_equal_bits),
        cmocka_unit_test(data_and_variables_may_be_elsewhere),
        cmocka_unit_test(devices_share_the_state_of_the_optimizer),
        cmocka_unit_test_setup_teardown(checkpoints_go_to_other_devices, make_test_dir, remove_test_dir),
    };
    const char *plugin = getenv("LOCKSTEP_PJRT_TEST_PLUGIN");
    if (!plugin || !*plugin) {
        print_message("SKIP: $LOCKSTEP_PJRT_TEST_PLUGIN names no PJRT plug-in\n");
        return 77;
    }
    if (lk_pjrt_use(plugin) != LK_OK) {
        print_error("%s\n", lk_error_message());
        return 1;
    }
    devices = lk_device_available("pjrt");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
