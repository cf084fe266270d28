/* Callbacks that only use reports, called with made-up reports. */
#include "lockstep/callbacks.h"

#include "base/mem_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static lk_mean mean_of(double value)
{
    return (lk_mean){value * 1000, 1000};
}

static void release(lk_callback *callback)
{
    if (callback->release)
        callback->release(callback->self);
}

/* --- stopping ----------------------------------------------------------------------------------------------------- */

enum { CASE_EPOCHS = 5 };

static FILE *open_lines(char **printed)
{
    static size_t size;
    FILE *stream = open_memstream(printed, &size);
    assert_non_null(stream);
    return stream;
}

/* Releases the callback. What it printed is then in the text of open_lines. */
static void close_lines(lk_callback *callback, FILE *stream)
{
    release(callback);
    fclose(stream);
}

/* Trains until the callback stops after epoch `epoch`, counted from 1; 0: it does not. */
static void expect_stop(lk_callback callback, FILE *stream, char **printed, const lk_epoch_report *reports,
                        int64_t epoch, const char *lines)
{
    int64_t stopped_after = 0;
    assert_non_null(callback.name);
    for (int i = 0; i < CASE_EPOCHS && !stopped_after; i++) {
        bool stop = false;
        lk_epoch_report report = reports[i];
        report.epoch = i + 1;
        assert_int_equal(callback.epoch_end(callback.self, NULL, &report, &stop), LK_OK);
        stopped_after = stop ? report.epoch : 0;
    }
    assert_int_equal(callback.train_end(callback.self, NULL, NULL, LK_OK), LK_OK);
    close_lines(&callback, stream);
    assert_int_equal(stopped_after, epoch);
    assert_string_equal(*printed, lines);
    free(*printed);
}

static void stops_at_accuracy(void **state)
{
    (void)state;
    static const struct {
        double target, patience, accuracy[5];
        int64_t epoch;
        const char *printed;
    } cases[] = {
        {0.85, 2, {0.9, 0.91, 0.92, 0, 0}, 2, "Early stopping after epoch 2\n"},
        {0.85, 1, {0.9}, 1, "Early stopping after epoch 1\n"},
        /* In a row: the third and fourth epochs, not the first and third. */
        {0.85, 2, {0.9, 0.8, 0.86, 0.87, 0.9}, 4, "Early stopping after epoch 4\n"},
        /* Strictly above. */
        {0.85, 1, {0.85, 0.85, 0.85, 0.85, 0.85}, 0, ""},
        {0.85, 1, {0.85, 0.85, 0.851, 0.85, 0.85}, 3, "Early stopping after epoch 3\n"},
        /* An epoch without a measurement is not above the target, and the count starts again. */
        {0.85, 2, {0.9, NAN, 0.9, NAN, 0.9}, 0, ""},
        {1, 1, {1, 1, 1, 1, 1}, 0, ""},
        /* Half an epoch of patience counts as a whole one. */
        {0.5, 2.5, {0.6, 0.6, 0.6, 0.6, 0.6}, 3, "Early stopping after epoch 3\n"},
        {0.5, 0, {0.4, 0.6, 0.6, 0.6, 0.6}, 2, "Early stopping after epoch 2\n"},
        {0, 3, {0.1, 0.1, 0, 0.1, 0.1}, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *printed;
        FILE *stream = open_lines(&printed);
        lk_epoch_report reports[CASE_EPOCHS] = {0};
        for (int e = 0; e < CASE_EPOCHS; e++)
            if (!isnan(cases[i].accuracy[e]))
                reports[e].val.accuracy = mean_of(cases[i].accuracy[e]);
        expect_stop(lk_callback_stop_at_accuracy(cases[i].target, cases[i].patience, stream), stream, &printed, reports,
                    cases[i].epoch, cases[i].printed);
    }
}

static void stops_on_plateau(void **state)
{
    (void)state;
    static const struct {
        int64_t patience;
        double min_delta, loss[5];
        int64_t epoch;
        const char *printed;
    } cases[] = {
        {2,
         0,
         {1, 0.9, 0.95, 0.9, 0.8},
         4,
         "Early stopping after epoch 4: the best validation loss, 0.9000, was in epoch 2\n"},
        {2, 0, {1, 0.9, 0.95, 0.85, 0.9}, 0, ""},
        {1, 0, {1, 1, 0, 0, 0}, 2, "Early stopping after epoch 2: the best validation loss, 1.0000, was in epoch 1\n"},
        {2,
         0.2,
         {1, 0.9, 0.85, 0.5, 0.1},
         3,
         "Early stopping after epoch 3: the best validation loss, 1.0000, was in epoch 1\n"},
        {3, 0, {NAN, NAN, NAN, 1, 1}, 3, "Early stopping after epoch 3: no validation loss was a number\n"},
        {2, 0, {1, NAN, 0.5, NAN, 0.4}, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *printed;
        FILE *stream = open_lines(&printed);
        lk_epoch_report reports[CASE_EPOCHS] = {0};
        for (int e = 0; e < CASE_EPOCHS; e++)
            reports[e].val.loss = mean_of(cases[i].loss[e]);
        expect_stop(lk_callback_stop_on_plateau(cases[i].patience, cases[i].min_delta, stream), stream, &printed,
                    reports, cases[i].epoch, cases[i].printed);
    }
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    static const struct {
        double target, patience;
        const char *names;
    } cases[] = {{1.01, 2, "1.01"}, {-0.1, 2, "-0.1"}, {NAN, 2, "nan"}, {0.5, -1, "-1"}, {0.5, NAN, "nan"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lk_error_clear();
        lk_callback callback = lk_callback_stop_at_accuracy(cases[i].target, cases[i].patience, stderr);
        assert_null(callback.name);
        assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
        assert_non_null(strstr(lk_error_message(), cases[i].names));
    }
    lk_error_clear();
    assert_null(lk_callback_stop_on_plateau(0, 0, stderr).name);
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_null(lk_callback_stop_on_plateau(1, -1, stderr).name);
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void prints_throughput(void **state)
{
    (void)state;
    char *printed;
    FILE *stream = open_lines(&printed);
    lk_callback callback = lk_callback_throughput(stream);
    assert_non_null(callback.name);
    /* Epochs of 8, 5 and 3 seconds, 3, 1 and none of them evaluation, and 2 seconds of records after each; skipped
     * steps were images too. */
    lk_epoch_report reports[] = {
        {.epoch = 1,
         .samples = 10000,
         .train.loss = {1, 9000},
         .seconds = 5,
         .epoch_seconds = 8,
         .total_seconds = 8,
         .images_per_second = 2000},
        {.epoch = 2,
         .samples = 10000,
         .seconds = 4,
         .epoch_seconds = 5,
         .total_seconds = 15,
         .images_per_second = 2500},
        {.epoch = 3, .samples = 3703, .seconds = 3, .epoch_seconds = 3, .total_seconds = 20, .images_per_second = 1},
    };
    bool stop = false;
    for (int i = 0; i < 3; i++)
        assert_int_equal(callback.epoch_end(callback.self, NULL, &reports[i], &stop), LK_OK);
    assert_false(stop);
    close_lines(&callback, stream);
    assert_string_equal(printed, "Images/sec: 1250.00\nImages/sec: 2000.00\nImages/sec: 1234.33\n");
    free(printed);
}

static void prints_total_time(void **state)
{
    (void)state;
    char *printed;
    FILE *stream = open_lines(&printed);
    lk_callback callback = lk_callback_total_time(stream);
    bool stop = false;
    callback.epoch_end(callback.self, NULL, &(lk_epoch_report){.epoch = 1, .seconds = 7, .total_seconds = 8.125},
                       &stop);
    callback.epoch_end(callback.self, NULL, &(lk_epoch_report){.epoch = 2, .seconds = 7, .total_seconds = 3600}, &stop);
    callback.train_end(callback.self, NULL, &(lk_train_result){.seconds = 14, .total_seconds = 3601.5},
                       LK_ERR_INTERRUPTED);
    close_lines(&callback, stream);
    assert_string_equal(printed, "Cumulative training time after epoch 1: 8.12\n"
                                 "Cumulative training time after epoch 2: 3600.00\n"
                                 "Cumulative training time: 3601.50\n");
    free(printed);
}

static double halved(void *user, double epoch, double rate)
{
    return rate / (1 + *(int *)user + floor(epoch));
}

static void asks_a_function_for_the_rate(void **state)
{
    (void)state;
    int user = 1;
    lk_callback callback = lk_callback_rate(halved, &user);
    assert_non_null(callback.name);
    assert_true(callback.rate(callback.self, NULL, 0.75, 1) == 0.5);
    assert_true(callback.rate(callback.self, NULL, 2.25, 1) == 0.25);
    release(&callback);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static lk_callback make(int which)
{
    switch (which) {
    case 0:
        return lk_callback_stop_at_accuracy(0.5, 1, stderr);
    case 1:
        return lk_callback_stop_on_plateau(1, 0, stderr);
    case 2:
        return lk_callback_rate(halved, NULL);
    case 3:
        return lk_callback_csv("x");
    case 4:
        return lk_callback_json_lines("x", NULL);
    case 5:
        return lk_callback_tensorboard("x");
    case 6:
        return lk_callback_curves("x", "y");
    case 7:
        return lk_callback_progress_bar(stderr);
    default:
        return lk_callback_live_plot(stderr);
    }
}

static void fails_without_memory(void **state)
{
    (void)state;
    for (int which = 0; which < 9; which++) {
        failing f = fail_every(1);
        while (fail_next(&f)) {
            lk_callback callback = make(which);
            stop_failing_with(&f, lk_error_status());
            assert_true((callback.name == NULL) == f.reached);
            if (callback.name)
                release(&callback);
        }
        assert_true(f.n > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_at_accuracy),           cmocka_unit_test(stops_on_plateau),
        cmocka_unit_test(refuses_what_makes_no_sense), cmocka_unit_test(prints_throughput),
        cmocka_unit_test(prints_total_time),           cmocka_unit_test(asks_a_function_for_the_rate),
        cmocka_unit_test(fails_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
