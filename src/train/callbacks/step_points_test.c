/* Steps by number: which of them end a point, and what it holds. */
#include "lockstep/callbacks.h"
#include "train/callbacks/step_points.h"

#include "base/folder_testing.h"
#include "base/mem_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_AN_EPOCH = 1000, MANY = 1000000 };

static lk_step_report report_of(int64_t step)
{
    return (lk_step_report){.epoch = (step - 1) / STEPS_AN_EPOCH + 1,
                            .step = (step - 1) % STEPS_AN_EPOCH + 1,
                            .steps = STEPS_AN_EPOCH,
                            .total = step,
                            .batch = {.loss = {(double)step, 2}, .accuracy = {1, 2}},
                            .rate = 1.0 / (double)step,
                            .skipped = step % 10000 == 7};
}

/* Every step is in exactly one point, and the number of points is what the header says. */
static void points_hold_all_steps(void **state)
{
    (void)state;
    lk_step_points points = {.every = LK_STEP_POINTS};
    lk_step_point point;
    int64_t count = 0, samples = 0, skipped = 0, last = 0;
    double losses = 0, wanted = 0;
    for (int64_t step = 1; step <= MANY; step++) {
        lk_step_report report = report_of(step);
        wanted += report.skipped ? 0 : (double)step;
        if (!lk__step_points_add(&points, &report, &point) && (step < MANY || !lk__step_points_end(&points, &point)))
            continue;
        assert_int_equal(point.step, step);
        assert_true(step > 1024 || step - last == 1);
        assert_true(point.rate == report.rate);
        assert_true(point.epoch == (double)(report.epoch - 1) + (double)report.step / STEPS_AN_EPOCH);
        last = step;
        count++;
        samples += point.loss.count;
        skipped += point.skipped;
        losses += point.loss.sum;
    }
    assert_int_equal(count, 6097);
    assert_int_equal(skipped, MANY / 10000);
    assert_int_equal(samples, 2 * (MANY - skipped));
    assert_true(losses == wanted);
    assert_false(lk__step_points_end(&points, &point));
}

/* The first of two batches of an update that is skipped, and a training without a guard. */
static void infinite_losses_count_only_without_a_guard(void **state)
{
    (void)state;
    for (int guarded = 0; guarded < 2; guarded++) {
        lk_step_points points = {.every = LK_STEP_POINTS};
        lk_step_point point;
        lk_step_report report = report_of(1);
        report.batch.loss.sum = INFINITY;
        report.so_far.loss = guarded ? (lk_mean){0} : report.batch.loss;
        assert_true(lk__step_points_add(&points, &report, &point));
        assert_int_equal(point.loss.count, guarded ? 0 : 2);
        assert_int_equal(point.accuracy.count, guarded ? 0 : 2);
    }
}

static char *rows_of(lk_row_format format, int64_t steps, size_t *size)
{
    char path[600];
    bool stop = false;
    snprintf(path, sizeof path, "%s", in_dir("steps"));
    lk_callback callback = lk_callback_steps(path, format);
    assert_non_null(callback.name);
    assert_int_equal(callback.train_begin(callback.self, NULL), LK_OK);
    for (int64_t step = 1; step <= steps; step++) {
        lk_step_report report = report_of(step);
        assert_int_equal(callback.step_end(callback.self, NULL, &report, &stop), LK_OK);
    }
    assert_int_equal(callback.train_end(callback.self, NULL, NULL, LK_OK), LK_OK);
    callback.release(callback.self);
    return contents_of(path, size);
}

static void rows_are_what_the_header_says(void **state)
{
    (void)state;
    size_t size;
    char *csv = rows_of(LK_ROWS_CSV, 7, &size);
    assert_string_equal(csv, "step,epoch,train_loss,train_accuracy,rate,skipped_steps\n"
                             "1,0.001,0.5,0.5,1.0,0\n2,0.002,1.0,0.5,0.5,0\n"
                             "3,0.003,1.5,0.5,0.3333333333333333,0\n4,0.004,2.0,0.5,0.25,0\n"
                             "5,0.005,2.5,0.5,0.2,0\n6,0.006,3.0,0.5,0.16666666666666666,0\n"
                             "7,0.007,,,0.14285714285714285,1\n");
    free(csv);
    char *json = rows_of(LK_ROWS_JSON, 1, &size);
    assert_string_equal(json, "{\"step\":1,\"epoch\":0.001,\"train_loss\":0.5,\"train_accuracy\":0.5,\"rate\":1.0,"
                              "\"skipped_steps\":0}\n");
    free(json);
}

static void a_million_steps_stay_small(void **state)
{
    (void)state;
    size_t size;
    char *csv = rows_of(LK_ROWS_CSV, MANY, &size);
    assert_true(size < 512 << 10);
    assert_non_null(strstr(csv, "\n1000000,1000.0,"));
    free(csv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_hold_all_steps),
        cmocka_unit_test(infinite_losses_count_only_without_a_guard),
        cmocka_unit_test(rows_are_what_the_header_says),
        cmocka_unit_test(a_million_steps_stay_small),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
