/* --optimizer-state sharded gives the same bits as mirrored, and each device keeps the optimizer's state of its slice.
 * $LOCKSTEP_TEST_KIND names another kind of device, for instance "cuda:0". With the arguments `save FOLDER`, under
 * mpirun, processes save and restore a state that they divide: see resume_processes_test.sh. */
#include "small_network.h"
#include "base/folder_testing.h"

#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/memory.h"
#include "train/trainer.h"

/* 1 to 4 devices. */
enum { SPECS = 4, ONE = 0, TWO = 1, THREE = 2, FOUR = 3, SHARDED = 1 };
static char specs[SPECS][32];
static bool is_cpu;

static lk_train_config settings(const char *optimizer)
{
    lk_train_config config = training_of(29, 7, 12, 4); /* batches of 12, 12 and 5 */
    config.optimizer.name = optimizer;
    config.optimizer.base_lr = 0.02;
    config.optimizer.weight_decay = 0.01;
    config.devices.strategy = "mirrored";
    return config;
}

static void same_as_mirrored(lk_train_config config)
{
    config.devices.spec = specs[TWO];
    config.devices.optimizer_state = 0;
    outcome mirrored = train_small(&config);
    config.devices.optimizer_state = SHARDED;
    for (int s = ONE; s < SPECS; s++) {
        config.devices.spec = specs[s];
        outcome sharded = train_small(&config);
        same(&mirrored, &sharded);
        assert_string_equal(sharded.result.state_digest, mirrored.result.state_digest);
    }
}

/* With clipping, with accumulation, with both and with neither; on GPUs, which may be emulated, the last two. */
static void same_in_all_ways(lk_train_config config)
{
    for (int way = 0; way < 4; way += is_cpu ? 1 : 3) {
        config.optimizer.clip_norm = way & 1 ? 0.1 : 0;
        config.accumulate = way & 2 ? 2 : 1;
        same_as_mirrored(config);
    }
}

static void sgd_has_the_bits_of_mirrored(void **state)
{
    (void)state;
    lk_train_config config = settings("sgd");
    same_in_all_ways(config);
    config.optimizer.momentum = 0.9;
    same_in_all_ways(config);
    config.optimizer.nesterov = true;
    same_in_all_ways(config);
}

static void adam_has_the_bits_of_mirrored(void **state)
{
    (void)state;
    same_in_all_ways(settings("adam"));
    same_in_all_ways(settings("adamw"));
}

static void lars_has_the_bits_of_mirrored(void **state)
{
    (void)state;
    lk_train_config config = settings("lars");
    same_in_all_ways(config);
    config.execution.dtype = LK_PRECISION_BF16;
    config.batch_norm.precise = 2;
    same_as_mirrored(config);
}

static void operators_pushed_one_by_one(void **state)
{
    (void)state;
    lk_train_config config = settings("adam");
    config.execution.executor = LK_EXECUTOR_EAGER;
    same_as_mirrored(config);
    config.batch_norm.mode = LK_BN_SYNC;
    same_as_mirrored(config);
}

/* The parameters take two cache lines, so that devices have nothing to update. */
static void more_devices_than_slices(void **state)
{
    (void)state;
    outcome outcomes[2];
    lk_train_config config = settings("lars");
    config.devices.spec = specs[FOUR];
    for (int sharded = 0; sharded < 2; sharded++) {
        lk_layer *root = LK_SEQUENTIAL(lk_layer_global_avg_pool(), lk_layer_flatten(), lk_layer_dense(10, NULL));
        config.devices.optimizer_state = sharded;
        outcomes[sharded] = fit_replicas(checked_trainer(
            lk_trainer_new_with(&config, lk_model_build("tiny", root, (lk_model_input){1, 28, 28, 10}))));
    }
    same(&outcomes[0], &outcomes[1]);
    assert_string_equal(outcomes[0].result.state_digest, outcomes[1].result.state_digest);
}

/* --- skipped updates ---------------------------------------------------------------------------------------------- */

/* Writes `values`, or with NULL values that overflow, to a variable of all replicas. */
static void write_weights(lk_trainer *trainer, const float *values, int64_t count, int index)
{
    float *large = calloc((size_t)count, sizeof *large);
    assert_non_null(large);
    for (int64_t e = 0; e < count; e++)
        large[e] = 3e38F;
    for (int r = 0; r < lk_strategy_num_replicas(lk_trainer_strategy(trainer)); r++)
        assert_ok(lk_tensor_write(lk_trainer_variables(trainer, r)[index], values ? values : large,
                                  (size_t)count * sizeof *large));
    free(large);
}

static bool last_update_was_skipped(const lk_trainer *trainer)
{
    double skipped;
    assert_ok(lk_tensor_item(lk_optimizer_skipped(lk_replicas_optimizer(trainer->replicas, 0)), &skipped));
    return skipped != 0;
}

/* Two of eight updates are skipped, because the weights of the last layer are too large. */
static void run_with_skipped_updates(const lk_train_config *config, char digest[33])
{
    lk_trainer *trainer = small_trainer(config);
    int index = trainer->n_parameters - 2;
    int64_t count = lk_tensor_count(lk_trainer_variables(trainer, 0)[index]);
    float *before = calloc((size_t)count, sizeof *before);
    assert_non_null(before);
    assert_ok(lk_trainer_run(trainer, 3));
    assert_false(last_update_was_skipped(trainer));
    assert_ok(lk_tensor_read(lk_trainer_variables(trainer, 0)[index], before, (size_t)count * sizeof *before));
    write_weights(trainer, NULL, count, index);
    assert_ok(lk_trainer_run(trainer, 2));
    assert_true(last_update_was_skipped(trainer));
    write_weights(trainer, before, count, index);
    assert_ok(lk_trainer_run(trainer, 3));
    assert_false(last_update_was_skipped(trainer));
    assert_ok(lk_trainer_digest(trainer, 0, digest));
    same_replicas(trainer, digest);
    assert_ok(lk_trainer_state_digest(trainer, digest));
    lk_trainer_release(trainer);
    free(before);
}

static void skipped_updates(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"sgd", "adam", "adamw", "lars"};
    for (int i = 0; i < 4; i++) {
        char expected[33], digest[33];
        lk_train_config config = settings(optimizers[i]);
        config.checks.nan_guard = LK_NAN_GUARD_SKIP;
        config.optimizer.momentum = i == 0 ? 0.9 : -1;
        config.devices.spec = specs[TWO];
        run_with_skipped_updates(&config, expected);
        config.devices.optimizer_state = SHARDED;
        for (int s = ONE; s < SPECS; s++) {
            config.devices.spec = specs[s];
            run_with_skipped_updates(&config, digest);
            assert_string_equal(digest, expected);
        }
    }
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* Trains, saves, and goes on in another way on other devices. */
static void resumes(lk_train_config config, const char *before, int state_before, const char *after, int state_after,
                    const char *expected)
{
    char digest[33];
    config.devices.spec = before;
    config.devices.optimizer_state = state_before;
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 5));
    assert_ok(lk_trainer_save(trainer, test_dir));
    lk_trainer_release(trainer);

    config.devices.spec = after;
    config.devices.optimizer_state = state_after;
    config.checkpoints.dir = test_dir;
    config.checkpoints.resume = true;
    trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 4));
    assert_ok(lk_trainer_state_digest(trainer, digest));
    assert_string_equal(digest, expected);
    assert_ok(lk_trainer_digest(trainer, 0, digest));
    same_replicas(trainer, digest);
    lk_trainer_release(trainer);
    empty_test_dir();
}

static void checkpoints_are_those_of_mirrored(void **state)
{
    (void)state;
    char expected[33];
    lk_train_config config = settings("adam");
    config.devices.spec = specs[TWO];
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 9));
    assert_ok(lk_trainer_state_digest(trainer, expected));
    lk_trainer_release(trainer);
    resumes(config, specs[TWO], 0, specs[THREE], SHARDED, expected);
    resumes(config, specs[THREE], SHARDED, specs[TWO], 0, expected);
    resumes(config, specs[FOUR], SHARDED, specs[TWO], SHARDED, expected);
    resumes(config, specs[FOUR], SHARDED, specs[ONE], SHARDED, expected);
    resumes(config, specs[ONE], 0, specs[FOUR], SHARDED, expected);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static int64_t held(const lk_device *device)
{
    int64_t now, peak;
    lk_device_memory(device, &now, &peak);
    return now;
}

/* The bytes that a new trainer takes on its device with most. */
static int64_t bytes_of_trainer(const lk_train_config *config)
{
    int64_t most = 0;
    lk_trainer *trainer = new_trainer(config);
    assert_ok(lk_wait_all());
    for (int d = 0; d < 4; d++)
        if (held(trainer->devices[d]) > most)
            most = held(trainer->devices[d]);
    lk_trainer_release(trainer);
    return most;
}

static void a_device_keeps_the_state_of_its_slice(void **state)
{
    (void)state;
    lk_train_config config = settings("adam");
    config.model = "lenet";
    config.devices.spec = specs[FOUR];
    config.devices.optimizer_state = SHARDED;
    lk_trainer *trainer = new_trainer(&config);
    int64_t parameters = trainer->plan.parameters, sum = 0;
    for (int d = 0; d < 4; d++) {
        int64_t own = lk_tensor_count(lk_optimizer_state(lk_replicas_optimizer(trainer->replicas, d), 1, NULL));
        assert_true(own <= 27 * parameters / 100);
        sum += own;
    }
    assert_in_range(sum, parameters, parameters + 1000); /* with the gaps between parameters */
    lk_trainer_release(trainer);

    int64_t one = parameters * (int64_t)sizeof(float), sharded = bytes_of_trainer(&config);
    config.devices.optimizer_state = 0;
    int64_t mirrored = bytes_of_trainer(&config);
    assert_in_range(mirrored - sharded, one * 14 / 10, one * 16 / 10); /* 3/4 of two states */
}

static void the_estimate_of_resnet18_with_adam(void **state)
{
    (void)state;
    lk_train_config config;
    lk_memory_estimate mirrored, sharded;
    assert_ok(lk_train_defaults(NULL, &config));
    config.model = "resnet18";
    config.data.name = "synthetic";
    config.devices.spec = "4xcpu";
    config.optimizer.name = "adam";
    lk_model *model = lk_model_new("resnet18", (lk_model_input){3, 32, 32, 10});
    assert_non_null(model);
    assert_ok(lk_estimate_memory(&config, model, false, &mirrored));
    config.devices.optimizer_state = SHARDED;
    assert_ok(lk_estimate_memory(&config, model, false, &sharded));
    lk_model_release(model);
    assert_true(mirrored.optimizer > 0);
    assert_true(sharded.optimizer <= 0.27 * mirrored.optimizer);
    assert_true(sharded.least < mirrored.least);
}

static void the_estimate_makes_no_folder_for_checkpoints(void **state)
{
    (void)state;
    lk_memory_estimate estimate;
    lk_train_config config = settings("sgd");
    config.model = "lenet";
    config.devices.spec = specs[FOUR];
    config.checkpoints.dir = "/dev/null/checkpoints";
    lk_model *model = lk_model_new("lenet", (lk_model_input){1, 28, 28, 10});
    assert_non_null(model);
    assert_ok(lk_estimate_memory(&config, model, false, &estimate));
    assert_int_equal(estimate.on_gpu, !is_cpu);
    lk_model_release(model);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void other_strategies_refuse(void **state)
{
    (void)state;
    lk_device *device = lk_device_open("cpu:0");
    lk_strategy *strategy = lk_strategy_new("central-storage", &device, 1);
    assert_non_null(strategy);
    expect_error(lk_strategy_set_sharded(strategy, true), LK_ERR_ARGUMENT,
                 "strategy central-storage: its devices cannot share the optimizer's state; those of mirrored, "
                 "multi-worker and tpu can");
    assert_ok(lk_strategy_set_sharded(strategy, false));
    lk_strategy_release(strategy);
    lk_device_release(device);

    lk_train_config config = settings("sgd");
    config.devices.strategy = "central-storage";
    config.devices.optimizer_state = SHARDED;
    assert_null(lk_trainer_new_with(&config, small_network()));
    assert_string_equal(
        lk_error_message(),
        "--optimizer-state: is for --strategy one-device, mirrored, multi-worker and tpu, not central-storage");
    lk_error_clear();
}

/* --- several processes -------------------------------------------------------------------------------------------- */

static void or_end(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "%s\n", lk_error_message());
    lk_abandon_processes();
    exit(1);
}

/* Saves the same state in each way. The first process writes; the others are not back before it has their part. */
static void save_in_all_ways(lk_trainer *trainer, const char *folders[3])
{
    lk_checkpoint_info info = {.steps = 5, .seed = 1};
    or_end(lk_trainer_save(trainer, folders[0]));
    or_end(lk_replicas_save(trainer->replicas, folders[1], &info));
    lk_checkpoint_writer *writer = lk_checkpoint_writer_new(trainer->replicas, folders[2], NULL, 0);
    or_end(writer ? lk_checkpoint_writer_save(writer, &info) : lk_error_status());
    or_end(lk_checkpoint_writer_wait(writer));
    lk_checkpoint_writer_release(writer);
}

static int save_and_restore(const char *folder)
{
    char paths[3][512], saved[33], later[33], restored[33];
    const char *folders[3];
    lk_train_config config = settings("adam");
    config.devices.strategy = "multi-worker";
    config.devices.spec = "cpu:0";
    config.devices.optimizer_state = SHARDED;
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
        folders[i] = paths[i];
    }
    lk_trainer *trainer = lk_trainer_new_with(&config, small_network_or_null());
    or_end(trainer ? lk_trainer_run(trainer, 5) : lk_error_status());
    save_in_all_ways(trainer, folders);
    or_end(lk_trainer_state_digest(trainer, saved));
    or_end(lk_trainer_run(trainer, 2)); /* not before the first process has written */
    or_end(lk_trainer_state_digest(trainer, later));
    int equal = 0;
    for (int i = 0; i < 3; i++) {
        lk_checkpoint *checkpoint;
        or_end(lk_checkpoint_open(folders[i], LK_CHECKPOINT_LAST, &checkpoint));
        or_end(lk_replicas_restore(trainer->replicas, checkpoint));
        lk_checkpoint_release(checkpoint);
        or_end(lk_trainer_state_digest(trainer, restored));
        equal += strcmp(restored, saved) == 0 && strcmp(restored, later) != 0;
        or_end(lk_trainer_run(trainer, 1));
    }
    lk_trainer_release(trainer);
    or_end(lk_leave_processes());
    printf("%d restored\n", equal);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "save") == 0)
        return save_and_restore(argv[2]);
    const char *kind = getenv("LOCKSTEP_TEST_KIND");
    is_cpu = !kind;
    for (int k = 0; k < SPECS; k++)
        snprintf(specs[k], sizeof specs[k], "%dx%s", k + 1, is_cpu ? "cpu" : kind);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_has_the_bits_of_mirrored),
        cmocka_unit_test(adam_has_the_bits_of_mirrored),
        cmocka_unit_test(lars_has_the_bits_of_mirrored),
        cmocka_unit_test(operators_pushed_one_by_one),
        cmocka_unit_test(more_devices_than_slices),
        cmocka_unit_test(skipped_updates),
        cmocka_unit_test_setup_teardown(checkpoints_are_those_of_mirrored, make_test_dir, remove_test_dir),
        cmocka_unit_test(a_device_keeps_the_state_of_its_slice),
        cmocka_unit_test(the_estimate_of_resnet18_with_adam),
        cmocka_unit_test(the_estimate_makes_no_folder_for_checkpoints),
        cmocka_unit_test(other_strategies_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
