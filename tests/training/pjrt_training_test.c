/* Trains on the devices of a real PJRT plug-in, that of $LOCKSTEP_PJRT_TEST_PLUGIN, with every number of them. An
 * argument selects tests: 'part*'. */
#include "small_network.h"
#include "base/folder_testing.h"
#include "core/trace.h"

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

/* Batch-norm over the shards of several devices: a pass is cut into modules where its groups are added up. */
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

/* Fifty steps, in which differences of rounding have time to grow. */
static void losses_stay_those_of_cores(void **state)
{
    (void)state;
    lk_train_config config = training_of(800, 21, 32, 4);
    config.optimizer.momentum = 0.9;
    config.optimizer.base_lr = 0.02;
    outcome here = train_on("2xpjrt", config), cpu = train_on("2xcpu", config);
    assert_int_equal(cpu.n_steps, 50);
    close_to(&here, &cpu, 1e-3);
}

/* Modules without the gradients of frozen parameters, and a batch-norm with its running statistics. */
static void frozen_parameters_give_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.freeze = "first";
    outcome here = train_on_any_of_them(config), cpu = train_on("2xcpu", config);
    close_to(&here, &cpu, 1e-4);
    config.freeze = "second,dense.bias";
    config.devices.optimizer_state = 1;
    here = train_on_any_of_them(config);
    cpu = train_on("2xcpu", config);
    close_to(&here, &cpu, 1e-4);
}

/* The average changes no update, and evaluations are its own. */
static void averages_give_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SHARD;
    outcome without = train_on("1xpjrt", config);
    config.optimizer.average = 0.8;
    for (int sharded = 0; sharded < 2; sharded++) {
        config.devices.optimizer_state = sharded;
        outcome here = train_on_any_of_them(config), cpu = train_on("2xcpu", config);
        close_to(&here, &cpu, 1e-4);
        assert_string_equal(here.result.digest, without.result.digest);
        assert_true(here.result.val.loss.sum != without.result.val.loss.sum);
        double x = here.result.val.loss.sum, y = cpu.result.val.loss.sum;
        assert_true(fabs(x - y) <= 1e-4 * fabs(y));
    }
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

/* Devices make every change of images, with the bits of the loader. */
static void augmentation_gives_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.batch_norm.mode = LK_BN_SHARD;
    config.data.augment =
        "shift=0.1,flip,vflip,rotate=20,crop=2,brightness=0.2,contrast=0.3,rand=9,cutout=6,erase=0.5,mixup=0.4";
    config.data.normalize = LK_NORMALIZE_STANDARD;
    config.data.memory = LK_DATA_ON_DEVICE;
    outcome device = train_on_any_of_them(config);
    config.data.memory = LK_DATA_ON_HOST;
    outcome host = train_on("2xpjrt", config);
    same(&host, &device);
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

/* --- recordings ----------------------------------------------------------------------------------------------------
 */

/* Counts the events of a recording on the threads of devices that have this kind and, if it is given, this name. */
static int count_on_devices(const lk_trace *trace, lk_trace_kind kind, const char *name)
{
    int n = 0;
    for (const lk_trace_track *track = trace->tracks; track; track = track->next)
        for (const lk_trace_chunk *chunk = track->first; chunk && track->kind == LK_TRACK_DEVICE; chunk = chunk->next)
            for (int i = 0; i < chunk->n; i++) {
                const lk_trace_event *event = &chunk->events[i];
                bool counts = event->kind == kind && (!name || strcmp(lk__trace_event_name(event), name) == 0);
                n += counts;
                assert_true(!counts || event->end > event->begin);
            }
    return n;
}

static lk_trace *stop_recording(void)
{
    assert_ok(lk_wait_all());
    lk_trace *trace = lk_trace_stop();
    assert_non_null(trace);
    return trace;
}

/* A step is four passes, each of so many modules, and two updates. No thread of a device waits for a result. */
static void steps_wait_for_no_device(lk_train_config config, int modules)
{
    enum { STEPS = 3, SHARDS = 4, DEVICES = 2 };
    config.devices.spec = "2xpjrt";
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 2));
    assert_ok(lk_wait_all());
    assert_ok(lk_trace_start(NULL));
    assert_ok(lk_trainer_run(trainer, STEPS));
    lk_trace *trace = stop_recording();
    assert_int_equal(count_on_devices(trace, LK_TRACE_CALL, "module"), STEPS * (SHARDS * modules + DEVICES));
    assert_int_equal(count_on_devices(trace, LK_TRACE_WAIT_RESULT, NULL), 0);
    lk_trace_release(trace);
    lk_trainer_release(trainer);
}

static void recordings_show_modules_and_no_wait(void **state)
{
    (void)state;
    lk_train_config config = training_of(96, 0, 32, 4);
    config.batch_norm.mode = LK_BN_SHARD;
    config.optimizer.clip_norm = 1;
    config.data.memory = LK_DATA_ON_DEVICE;
    steps_wait_for_no_device(config, 1);
    config.data.memory = LK_DATA_ON_HOST;
    config.devices.optimizer_state = 1;
    steps_wait_for_no_device(config, 1);
    config.batch_norm.mode = LK_BN_SYNC; /* two layers, with a sum in the forward and one in the backward pass */
    steps_wait_for_no_device(config, 5);
}

/* A part of a tensor goes to another device without the host too. */
static void parts_go_from_device_to_device(void **state)
{
    (void)state;
    lk_device *on[2];
    lk_tensor *shards[4];
    int n;
    float values[12], found[3];
    for (int i = 0; i < 12; i++)
        values[i] = (float)i;
    assert_ok(lk_devices_open("2xpjrt", on, 2, &n));
    lk_tensor *batch = lk_tensor_from(on[0], LK_F32, LK_SHAPE(4, 3), values);
    assert_ok(lk_tensor_wait(batch));
    assert_ok(lk_trace_start(NULL));
    assert_ok(lk_split_batch(batch, 4, on, 2, shards));
    lk_trace *trace = stop_recording();
    assert_int_equal(count_on_devices(trace, LK_TRACE_CALL, "copy"), 2);
    assert_int_equal(count_on_devices(trace, LK_TRACE_WAIT_RESULT, NULL), 0);
    lk_trace_release(trace);
    for (int s = 0; s < 4; s++) {
        assert_ptr_equal(lk_tensor_device(shards[s]), on[s / 2]);
        assert_ok(lk_tensor_read(shards[s], found, sizeof found));
        assert_memory_equal(found, values + 3 * (ptrdiff_t)s, sizeof found);
        lk_tensor_release(shards[s]);
    }
    lk_tensor_release(batch);
    lk_devices_release(on, 2);
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
    config.optimizer.average = 0.8;
    empty_test_dir();
    whole = train_a_part("2xpjrt", config, true, false);
    parts = train_in_two_parts("1xpjrt", "3xpjrt", &config);
    assert_string_equal(parts.state_digest, whole.state_digest);
    static const char *const ways[][2] = {{"2xpjrt", "2xcpu"}, {"2xcpu", "2xpjrt"}};
    for (int i = 0; i < 2; i++) {
        lk_train_result other = train_in_two_parts(ways[i][0], ways[i][1], &config);
        double x = other.val.loss.sum, y = whole.val.loss.sum;
        assert_true(fabs(x - y) <= 1e-3 * fabs(y));
    }
}

/* Applies gradients of 1 twice; the second time those that the optimizer has kept, if `keeps`. */
static void apply_twice(bool keeps, char digest[33])
{
    lk_device *device = lk_device_open("pjrt:0");
    lk_strategy *strategy = lk_strategy_new("one-device", &device, 1);
    lk_model *model = lk_model_build("dense", LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_dense(3, NULL)),
                                     (lk_model_input){1, 4, 4, 3});
    lk_optimizer_opts opts = {.momentum = 0.9};
    lk_replicas *replicas = lk_replicas_new(strategy, model, &opts, 1);
    assert_non_null(replicas);
    lk_scope_begin();
    lk_tensor *const *variables = lk_replicas_variables(replicas, 0);
    lk_tensor *sums[2], *const *kept;
    for (int i = 0; i < 2; i++)
        sums[i] = lk_ones(device, LK_F32, lk_tensor_shape(variables[i]));
    assert_ok(lk_replicas_apply(replicas, sums, 2, 8, 0.1));
    kept = lk_optimizer_gradients(lk_replicas_optimizer(replicas, 0));
    assert_non_null(kept);
    assert_ok(lk_replicas_apply(replicas, keeps ? kept : sums, 2, 8, 0.1));
    assert_ok(lk_replicas_digest(replicas, 0, digest));
    lk_scope_end();
    lk_replicas_release(replicas);
    lk_model_release(model);
    lk_strategy_release(strategy);
    lk_device_release(device);
}

static void gradients_that_the_optimizer_keeps_can_be_applied(void **state)
{
    (void)state;
    char want[33], have[33];
    apply_twice(false, want);
    apply_twice(true, have);
    assert_string_equal(have, want);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_by_themselves_give_equal_bits),
        cmocka_unit_test(groups_of_shards_give_equal_bits),
        cmocka_unit_test(bf16_gives_equal_bits),
        cmocka_unit_test(losses_stay_those_of_cores),
        cmocka_unit_test(frozen_parameters_give_equal_bits),
        cmocka_unit_test(averages_give_equal_bits),
        cmocka_unit_test(data_and_variables_may_be_elsewhere),
        cmocka_unit_test(augmentation_gives_equal_bits),
        cmocka_unit_test(devices_share_the_state_of_the_optimizer),
        cmocka_unit_test(recordings_show_modules_and_no_wait),
        cmocka_unit_test(parts_go_from_device_to_device),
        cmocka_unit_test(gradients_that_the_optimizer_keeps_can_be_applied),
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
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
