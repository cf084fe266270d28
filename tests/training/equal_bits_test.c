/* The number of devices never changes the result: the same bits in every parameter, loss and accuracy on any number of
 * devices. Other settings must give other bits, so that equality means something. */
#include "training.h"

#include "lockstep/ops.h"

#include <limits.h>
#include <unistd.h>

static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "4xcpu", "7xcpu"};
static const int counts[] = {1, 2, 3, 4, 7};
enum { SPECS = sizeof counts / sizeof counts[0] };

static void any_number_of_devices(lk_train_config config)
{
    outcome first;
    for (int s = 0; s < SPECS && counts[s] <= config.devices.shards; s++) {
        config.devices.spec = specs[s];
        config.data.workers = s % 3 == 0 ? 1 : s % 3 == 1 ? 0 : 3;
        outcome out = train(&config);
        if (s == 0)
            first = out;
        else
            same(&first, &out);
    }
}

/* 8 divides 32, 12 does not, and neither divides 25. The last batches have 3 and 17 samples. */
static void batches(int64_t shards)
{
    lk_train_config config = small_training();
    config.devices.shards = shards;
    any_number_of_devices(config);
    config.batch_size = 25;
    config.seed = 3;
    any_number_of_devices(config);
}

static void one_shard_gives_equal_bits(void **state)
{
    (void)state;
    batches(1);
}

static void eight_shards_give_equal_bits(void **state)
{
    (void)state;
    batches(8);
}

static void twelve_shards_give_equal_bits(void **state)
{
    (void)state;
    batches(12);
}

/* Fewer samples than shards and devices in every batch. */
static void batches_may_have_fewer_samples_than_devices(void **state)
{
    (void)state;
    lk_train_config config = training_of(3, 2, 32, 12);
    any_number_of_devices(config);
}

static void plain_c_kernels_give_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = training_of(11, 7, 8, 8);
    config.devices.spec = "1xref";
    outcome one = train(&config);
    config.devices.spec = "3xref";
    outcome three = train(&config);
    same(&one, &three);
}

static void both_strategies_on_one_device(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.devices.spec = "1xcpu";
    config.devices.strategy = "one-device";
    outcome one = train(&config);
    config.devices.strategy = "mirrored";
    outcome mirrored = train(&config);
    same(&one, &mirrored);
}

static void devices_may_share_a_core(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.devices.shards = 8;
    config.devices.spec = "cpu:0";
    outcome one = train(&config);
    config.devices.spec = "3xcpu:0";
    outcome three = train(&config);
    same(&one, &three);
}

static void other_settings_give_other_bits(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.devices.spec = "2xcpu";
    config.devices.shards = 8;
    outcome first = train(&config), again = train(&config);
    same(&first, &again);
    lk_train_config other[5] = {config, config, config, config, config};
    other[0].seed = 1;
    other[1].batch_size = 31;
    other[2].devices.shards = 12;
    other[3].optimizer.base_lr = 0.25;
    other[4].data.limit_train = 66;
    for (int i = 0; i < 5; i++) {
        outcome out = train(&other[i]);
        assert_string_not_equal(out.result.digest, first.result.digest);
    }
}

/* Stopping for evaluation or running steps one by one does not change the result. */
static void steps_one_by_one_give_the_same_bits(void **state)
{
    (void)state;
    char digest[33];
    lk_metrics metrics;
    lk_train_config config = small_training();
    config.devices.spec = "2xcpu";
    outcome whole = train(&config);
    lk_trainer *trainer = new_trainer(&config);
    for (int step = 0; step < 6; step++) {
        assert_ok(lk_trainer_run(trainer, 1));
        assert_ok(lk_trainer_evaluate(trainer, &metrics));
    }
    assert_ok(lk_trainer_digest(trainer, 0, digest));
    assert_string_equal(digest, whole.result.digest);
    same_metrics(&metrics, &whole.result.val);
    same_metrics(&metrics, &whole.epochs[1].val);
    lk_trainer_release(trainer);
}

/* --- the synchronous engine, in a process of its own -------------------------------------------------------------- */

static int print_digest(void)
{
    lk_train_config config = small_training();
    lk_train_result result;
    config.devices.spec = "3xcpu";
    config.devices.shards = 8;
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer || lk_trainer_fit(trainer, &result) != LK_OK) {
        fprintf(stderr, "%s\n", lk_error_message());
        return 1;
    }
    lk_trainer_release(trainer);
    puts(result.digest);
    return 0;
}

static void digest_of_child(const char *engine, char digest[33])
{
    char self[PATH_MAX] = "", command[PATH_MAX + 64];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "LOCKSTEP_ENGINE=%s '%s' digest", engine, self);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    assert_int_equal(fread(digest, 1, 32, output), 32);
    digest[32] = '\0';
    assert_int_equal(pclose(output), 0);
}

static void the_synchronous_engine_gives_the_same_bits(void **state)
{
    (void)state;
    char sync[33], async[33];
    lk_train_config config = small_training();
    config.devices.spec = "2xcpu";
    config.devices.shards = 8;
    outcome here = train(&config);
    digest_of_child("sync", sync);
    digest_of_child("async", async);
    assert_string_equal(sync, here.result.digest);
    assert_string_equal(async, here.result.digest);
}

/* --- lk_verify ---------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int runs, devices, steps;
    char digest[33];
} seen;

static void see_run(void *user, const lk_verify_run *run)
{
    seen *s = user;
    s->runs++;
    s->devices += run->device_count;
    memcpy(s->digest, run->digest, sizeof s->digest);
}

static void verify_finds_no_difference(void **state)
{
    (void)state;
    seen s = {0};
    lk_train_config config = small_training();
    lk_verify_result result;
    lk_verify_opts opts = {.specs = (const char *[]){"1", "3xcpu", "cpu:1,cpu:0"}, .count = 3, .steps = 7};
    opts.run_done = see_run;
    opts.user = &s;
    assert_ok(lk_verify(&config, &opts, &result));
    assert_true(result.identical);
    assert_int_equal(result.shards, 4);
    assert_int_equal(s.runs, 3);
    assert_int_equal(s.devices, 6);

    char digest[33];
    config.devices.shards = 4;
    config.devices.spec = "1";
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 7));
    assert_ok(lk_trainer_digest(trainer, 0, digest));
    assert_string_equal(digest, s.digest);
    lk_trainer_release(trainer);
}

static void verify_takes_other_settings(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    lk_verify_result result;
    lk_verify_opts opts = {.specs = (const char *[]){"1xcpu", "2xcpu", "3xcpu"}, .count = 3, .steps = 4};
    config.model = "keras-cnn";
    config.data.limit_train = 20;
    config.batch_size = 10;
    config.accumulate = 2;
    config.data.augment = "shift=0.1,flip,cutout=5";
    config.data.normalize = LK_NORMALIZE_STANDARD;
    assert_ok(lk_verify(&config, &opts, &result));
    assert_true(result.identical);
    config.model = NULL;
    expect_error(lk_verify(&config, &opts, &result), LK_ERR_ARGUMENT, "--model: a name is needed");

    config = small_training(); /* of LeNet, whose recipe has batches of 256 */
    config.recipe = "fashion-mnist-wrn";
    config.batch_size = 0;
    opts = (lk_verify_opts){.specs = opts.specs, .count = 2, .steps = 1};
    assert_ok(lk_verify(&config, &opts, &result));
    assert_int_equal(result.shards, lk_default_shards(32));
}

/* Returns true, which ends verification, after the second step on the second set of devices. */
static bool see_step(void *user, const char *devices, int64_t step)
{
    seen *s = user;
    s->steps++;
    assert_string_equal(devices, s->steps <= 3 ? "1xcpu" : "2xcpu");
    assert_int_equal(step, s->steps <= 3 ? s->steps : s->steps - 3);
    return s->steps < 5;
}

static void verify_can_be_ended(void **state)
{
    (void)state;
    seen s = {0};
    lk_train_config config = small_training();
    lk_verify_result result;
    lk_verify_opts opts = {.specs = (const char *[]){"1xcpu", "2xcpu", "3xcpu"}, .count = 3, .steps = 3};
    opts.step_done = see_step;
    opts.run_done = see_run;
    opts.user = &s;
    expect_error(lk_verify(&config, &opts, &result), LK_ERR_INTERRUPTED, "verify: interrupted on 2xcpu after step 2");
    assert_int_equal(s.steps, 5);
    assert_int_equal(s.runs, 1);
}

/* Finds the first step and variable that differ between two devices, without lk_verify. */
static void find_difference(lk_train_config config, const char *const *pair, int64_t steps, int64_t *step,
                            char name[128])
{
    lk_trainer *trainers[2];
    *step = 0;
    for (int t = 0; t < 2; t++) {
        config.devices.spec = pair[t];
        trainers[t] = new_trainer(&config);
    }
    const lk_model *model = lk_trainer_model(trainers[0]);
    for (int64_t s = 1; s <= steps && !*step; s++) {
        assert_ok(lk_trainer_run(trainers[0], 1));
        assert_ok(lk_trainer_run(trainers[1], 1));
        for (int i = 0; i < lk_model_variable_count(model) && !*step; i++) {
            uint64_t a, b;
            assert_ok(lk_trainer_variable_hash(trainers[0], 0, i, &a));
            assert_ok(lk_trainer_variable_hash(trainers[1], 0, i, &b));
            if (a != b) {
                *step = s;
                snprintf(name, 128, "%s", lk_model_variable_name(model, i));
            }
        }
    }
    lk_trainer_release(trainers[0]);
    lk_trainer_release(trainers[1]);
}

/* oneDNN and plain C sum in different orders, so the two kinds of devices must differ, and lk_verify must say so. */
static void verify_finds_a_difference(void **state)
{
    (void)state;
    const char *implementation = NULL;
    for (int op = 0; lk_op_name(op); op++)
        if (strcmp(lk_op_name(op), "conv2d") == 0)
            implementation = lk_op_implementation(op, "cpu", LK_F32);
    if (!implementation || strcmp(implementation, "c") == 0) {
        print_message("SKIP: this build has one implementation of conv2d, so no two devices differ\n");
        skip();
    }
    static const char *const kinds[] = {"cpu:0", "2xcpu", "ref:0"};
    int64_t step;
    char name[128] = "";
    lk_train_config config = small_training();
    lk_verify_result result;
    lk_verify_opts opts = {.specs = kinds, .count = 3, .steps = 3};
    config.devices.shards = 2;
    config.data.limit_train = 20;
    config.batch_size = 10;
    find_difference(config, (const char *[]){kinds[0], kinds[2]}, 3, &step, name);
    assert_int_not_equal(step, 0);
    assert_ok(lk_verify(&config, &opts, &result));
    assert_false(result.identical);
    assert_int_equal(result.step, step);
    assert_string_equal(result.tensor, name);
    assert_int_equal(result.run, 2);
    assert_int_equal(result.replica, 0);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    lk_verify_result result = {.shards = 7};
    lk_verify_opts opts = {.specs = (const char *[]){"1", "3"}, .count = 2, .steps = 1};
    config.devices.shards = 2;
    expect_error(lk_verify(&config, &opts, &result), LK_ERR_ARGUMENT,
                 "--shards 2: 3 devices need at least as many shards");
    assert_int_equal(result.shards, 0);
    config.devices.shards = 0;
    opts.steps = 0;
    expect_error(lk_verify(&config, &opts, &result), LK_ERR_ARGUMENT,
                 "verify: 0 steps on 2 sets of devices: must be at least 1 step, and 2 sets to compare");
    opts = (lk_verify_opts){.specs = opts.specs, .count = 1, .steps = 1};
    expect_error(lk_verify(&config, &opts, &result), LK_ERR_ARGUMENT,
                 "verify: 1 steps on 1 sets of devices: must be at least 1 step, and 2 sets to compare");
    config.devices.shards = 33;
    config.devices.spec = "1";
    assert_null(lk_trainer_new(&config));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "--shards 33: must be at most the batch size, 32");
    assert_null(lk_trainer_new(&(lk_train_config){0}));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "--model: a name is needed");
    config = small_training();
    config.batch_size = -5;
    assert_null(lk_trainer_new(&config));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "--batch-size -5: must be an integer from 1 to 16777216");
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return print_digest();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shard_gives_equal_bits),
        cmocka_unit_test(eight_shards_give_equal_bits),
        cmocka_unit_test(twelve_shards_give_equal_bits),
        cmocka_unit_test(batches_may_have_fewer_samples_than_devices),
        cmocka_unit_test(plain_c_kernels_give_equal_bits),
        cmocka_unit_test(both_strategies_on_one_device),
        cmocka_unit_test(devices_may_share_a_core),
        cmocka_unit_test(other_settings_give_other_bits),
        cmocka_unit_test(steps_one_by_one_give_the_same_bits),
        cmocka_unit_test(the_synchronous_engine_gives_the_same_bits),
        cmocka_unit_test(verify_finds_no_difference),
        cmocka_unit_test(verify_takes_other_settings),
        cmocka_unit_test(verify_can_be_ended),
        cmocka_unit_test(verify_finds_a_difference),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
