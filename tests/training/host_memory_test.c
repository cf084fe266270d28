/* The lower bound of a training's memory, which refuses what cannot fit: it is less than what the training takes, so
 * that nothing that fits is refused, and more than two fifths of it. Each training runs in a process of its own, whose
 * memory the system counts. */
#include "train/training_testing.h"
#include "lockstep/build.h"
#include "lockstep/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char model[64];

typedef struct memory_case {
    const char *model, *devices, *strategy, *optimizer;
    int64_t shards;
    bool bf16;
    int64_t accumulate;
} memory_case;

static lk_train_config config_of(const memory_case *c)
{
    lk_train_config config = training_of(64, 0, 32, c->shards);
    config.epochs = 1;
    config.model = c->model;
    config.devices.spec = c->devices;
    config.devices.strategy = c->strategy;
    config.optimizer.name = c->optimizer;
    config.accumulate = c->accumulate;
    config.execution.dtype = c->bf16 ? LK_PRECISION_BF16 : LK_PRECISION_F32;
    return config;
}

/* Trains in a new process; returns the most bytes that it had in memory. */
static double bytes_of(const memory_case *c)
{
    int status;
    struct rusage used;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lk_train_result result;
        lk_train_config config = config_of(c);
        lk_trainer *trainer = new_trainer(&config);
        _exit(lk_trainer_fit(trainer, &result) == LK_OK ? 0 : 1);
    }
    assert_int_equal(wait4(child, &status, 0, &used), child);
    assert_int_equal(status, 0);
    return 1024.0 * (double)used.ru_maxrss;
}

static double least_of(const memory_case *c)
{
    lk_memory_estimate estimate;
    lk_train_config config = config_of(c);
    lk_model *made = lk_model_new(c->model, (lk_model_input){1, 28, 28, 10});
    assert_non_null(made);
    assert_ok(lk_estimate_memory(&config, made, false, &estimate));
    lk_model_release(made);
    return estimate.least;
}

static void test_bound(void **state)
{
    (void)state;
    const memory_case small = {"lenet", "1xcpu", NULL, "sgd", 1, false, 1};
    const memory_case cases[] = {
        {model, "1xcpu", NULL, "sgd", 1, false, 1},  {model, "1xcpu", NULL, "sgd", 8, false, 1},
        {model, "1xcpu", NULL, "adam", 2, false, 1}, {model, "1xcpu", NULL, "sgd", 4, true, 1},
        {model, "2xcpu", NULL, "sgd", 4, false, 1},  {model, "2xcpu", NULL, "adam", 8, false, 1},
        {model, "4xcpu", NULL, "lars", 8, false, 1}, {model, "2xcpu", "central-storage", "adam", 4, false, 1},
        {model, "1xcpu", NULL, "sgd", 1, false, 2},
    };
    enum { CASES = sizeof cases / sizeof cases[0] };
    double taken[CASES], others = bytes_of(&small);
    for (int i = 0; i < CASES; i++) /* before this process has threads */
        taken[i] = bytes_of(&cases[i]);
    for (int i = 0; i < CASES; i++) {
        double least = least_of(&cases[i]);
        printf("case %d: %.1f MiB, of which %.1f for other things; at least %.1f\n", i, taken[i] / 1048576,
               others / 1048576, least / 1048576);
        assert_true(least < taken[i]);
        assert_true(least > 0.4 * (taken[i] - others));
    }
    assert_true(least_of(&cases[CASES - 1]) > 1.3 * least_of(&cases[0])); /* sums of an update's earlier batches */
}

/* Without devices.spec the estimate is for those that the trainer takes. */
static void test_default_devices(void **state)
{
    (void)state;
    for (int64_t shards = 0; shards < 2; shards++) {
        lk_memory_estimate estimate;
        lk_train_config config = training_of(64, 0, 256, shards);
        config.devices.spec = NULL;
        lk_trainer *trainer = new_trainer(&config);
        lk_model *lenet = lk_model_new("lenet", (lk_model_input){1, 28, 28, 10});
        assert_non_null(lenet);
        assert_ok(lk_estimate_memory(&config, lenet, false, &estimate));
        assert_false(estimate.on_gpu);
        assert_int_equal(estimate.devices, lk_trainer_plan(trainer)->devices);
        assert_int_equal(estimate.shards, lk_trainer_plan(trainer)->shards);
        config.devices.strategy = "tpu";
        assert_int_equal(lk_estimate_memory(&config, lenet, false, &estimate), LK_ERR_UNSUPPORTED);
        lk_error_clear();
        lk_model_release(lenet);
        lk_trainer_release(trainer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bound), cmocka_unit_test(test_default_devices)};
    if (strstr(lk_build_compiler(), "sanitizers")) {
        puts("SKIP: sanitizers take memory too");
        return 77;
    }
    char folder[] = "/tmp/lk-host-memory-XXXXXX";
    if (!mkdtemp(folder))
        return 1;
    snprintf(model, sizeof model, "%s/wide.lk", folder);
    FILE *file = fopen(model, "w");
    if (!file)
        return 1;
    fputs("flatten\ndense 2048\nrelu\ndense 2048\nrelu\ndense 2048\nrelu\ndense classes\n", file);
    fclose(file);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(model);
    rmdir(folder);
    return failed;
}
