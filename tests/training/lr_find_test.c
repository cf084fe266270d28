/* The range test: equal bits on any devices, rates that grow as they should, an end by divergence, nothing kept. */
#include "training.h"
#include "lockstep/lr_find.h"

#include <math.h>

static lk_train_config learning(void)
{
    lk_train_config config = training_of(640, 32, 32, 0);
    config.model = "keras-cnn";
    config.optimizer.name = "adam";
    config.checkpoints.dir = "/nowhere/at all";
    config.stop.early_stop = 3;
    return config;
}

static lk_lr_find_result found(lk_train_config config, const char *devices, lk_lr_find_opts opts)
{
    lk_lr_find_result result;
    config.devices.spec = devices;
    config.devices.shards = 8;
    assert_ok(lk_lr_find(&config, &opts, &result));
    return result;
}

static void same_points_on_any_devices(void **state)
{
    (void)state;
    lk_lr_find_opts opts = {.low = 1e-5, .high = 1, .steps = 40};
    for (int accumulate = 1; accumulate < 4; accumulate += 2) {
        lk_train_config config = learning();
        config.accumulate = accumulate;
        lk_lr_find_result first = found(config, "1xcpu", opts);
        assert_true(first.count > 10 && first.points[0].rate == 1e-5);
        for (int64_t i = 1; i < first.count; i++)
            assert_float_equal(first.points[i].rate / first.points[i - 1].rate, pow(1e5, 1.0 / 39), 1e-6);
        static const char *const others[] = {"2xcpu", "4xcpu"};
        for (int d = 0; d < 2; d++) {
            lk_lr_find_result other = found(config, others[d], opts);
            assert_int_equal(other.count, first.count);
            assert_memory_equal(other.points, first.points, (size_t)first.count * sizeof *first.points);
            assert_memory_equal(&other.suggestion, &first.suggestion, sizeof first.suggestion);
            lk_lr_find_free(&other);
        }
        lk_lr_find_free(&first);
    }
}

static void a_loss_that_diverges_ends_the_test(void **state)
{
    (void)state;
    lk_lr_find_result result = found(learning(), "2xcpu", (lk_lr_find_opts){.low = 1e-4, .high = 1e4, .steps = 60});
    assert_true(result.diverged && result.count < 60);
    assert_null(result.reason);
    assert_true(result.suggestion > 1e-4 && result.suggestion < result.points[result.lowest].rate);
    lk_lr_find_free(&result);
    result = found(learning(), "2xcpu", (lk_lr_find_opts){.low = 1e-12, .high = 1e-10, .steps = 12});
    assert_true(!result.diverged && result.count == 12);
    assert_non_null(result.reason);
    assert_true(isnan(result.suggestion));
    lk_lr_find_free(&result);
}

static void refused(lk_lr_find_opts opts, const char *message)
{
    lk_train_config config = learning();
    lk_lr_find_result result;
    assert_int_equal(lk_lr_find(&config, &opts, &result), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), message);
    assert_null(result.points);
    lk_error_clear();
}

static void refuses_bad_ranges(void **state)
{
    (void)state;
    refused((lk_lr_find_opts){.low = 1, .high = 1, .steps = 20},
            "--low 1 --high 1: rates must be above 0, and the highest above the lowest");
    refused((lk_lr_find_opts){.low = 0, .high = 1, .steps = 20},
            "--low 0 --high 1: rates must be above 0, and the highest above the lowest");
    refused((lk_lr_find_opts){.low = 1, .high = 1e39, .steps = 20}, "--high 1e+39: must be finite in f32");
    refused((lk_lr_find_opts){.low = 0.1, .high = 1, .steps = 9}, "--steps 9: must be from 10 to 1000000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_points_on_any_devices),
        cmocka_unit_test(a_loss_that_diverges_ends_the_test),
        cmocka_unit_test(refuses_bad_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
