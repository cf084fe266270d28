#include "lockstep/optim.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void expect(const lk_schedule *schedule, double epoch, double want)
{
    double have = lk_schedule_rate(schedule, epoch);
    if (!(fabs(have - want) <= 4e-16 * fabs(want)))
        fail_msg("epoch %.9g: rate %.17g, expected %.17g", epoch, have, want);
}

static lk_schedule parsed(const char *text, double base)
{
    lk_schedule schedule = {.kind = LK_SCHEDULE_STEP, .base = base};
    lk_error_clear();
    if (lk_schedule_parse_steps(text, &schedule) != LK_OK)
        fail_msg("%s", lk_error_message());
    return schedule;
}

static void test_constant(void **state)
{
    (void)state;
    lk_schedule schedule = {.base = 0.1};
    expect(&schedule, 0, 0.1);
    expect(&schedule, 1e6, 0.1);
}

/* The WideResNet lab: a tenth of the rate from epochs 15, 25 and 35 on. */
static void test_lab_table(void **state)
{
    (void)state;
    lk_schedule schedule = parsed("15:0.1,25:0.01,35:0.001", 0.01);
    assert_int_equal(schedule.n_steps, 3);
    for (int epoch = 0; epoch < 40; epoch++)
        expect(&schedule, epoch, epoch < 15 ? 0.01 : epoch < 25 ? 0.001 : epoch < 35 ? 0.0001 : 0.00001);
    expect(&schedule, 14.999, 0.01);
    expect(&schedule, 24.5, 0.001);
}

/* Keras's notebook: 1e-3, then 1e-4 from the fourth epoch and 1e-5 from the eighth. */
static void test_keras_table(void **state)
{
    (void)state;
    lk_schedule schedule = parsed("3:0.1,7:0.01", 1e-3);
    const double want[12] = {1e-3, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4, 1e-4, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5};
    for (int epoch = 0; epoch < 12; epoch++)
        expect(&schedule, epoch, want[epoch]);
}

static void test_cosine(void **state)
{
    (void)state;
    lk_schedule schedule = {.kind = LK_SCHEDULE_COSINE, .base = 0.4, .minimum = 0.02, .epochs = 30};
    assert_true(lk_schedule_rate(&schedule, 0) == 0.4);
    assert_true(lk_schedule_rate(&schedule, 30) == 0.02);
    assert_true(lk_schedule_rate(&schedule, 31) == 0.02);
    expect(&schedule, 15, 0.21);
    for (int i = 0; i <= 3000; i++) {
        double epoch = i / 100.0, have = lk_schedule_rate(&schedule, epoch);
        fesetround(FE_UPWARD);
        double upward = lk_schedule_rate(&schedule, epoch);
        assert_int_equal(fegetround(), FE_UPWARD);
        fesetround(FE_TONEAREST);
        assert_true(upward == have);
        double want = 0.02 + 0.38 * (1 + cos(acos(-1.0) * epoch / 30)) / 2;
        assert_true(fabs(have - want) < 2e-16);
        assert_true(i == 0 || have < lk_schedule_rate(&schedule, (i - 1) / 100.0));
    }
}

static void test_warmup(void **state)
{
    (void)state;
    lk_schedule schedule = parsed("3:0.1", 0.5);
    schedule.warmup_epochs = 2;
    schedule.warmup_start = 0.1;
    expect(&schedule, 0, 0.05);
    expect(&schedule, 1, 0.275);
    expect(&schedule, 1.5, 0.3875);
    expect(&schedule, 2, 0.5);
    expect(&schedule, 2.9, 0.5);
    expect(&schedule, 3, 0.05);
    /* A cosine over the whole run, multiplied by the ramp. */
    lk_schedule cosine = {.kind = LK_SCHEDULE_COSINE, .base = 1, .epochs = 10, .warmup_epochs = 2.5};
    expect(&cosine, 0, 0);
    assert_true(fabs(lk_schedule_rate(&cosine, 1.25) - (1 + cos(acos(-1.0) * 0.125)) / 4) < 2e-16);
    assert_true(fabs(lk_schedule_rate(&cosine, 2.5) - (1 + cos(acos(-1.0) * 0.25)) / 2) < 2e-16);
}

/* A step during warm-up lowers the rate at once, and warm-up continues. */
static void test_step_within_warmup(void **state)
{
    (void)state;
    lk_schedule schedule = parsed("3:0.1,7:0.01", 0.004); /* Keras's, scaled to four times the batch */
    schedule.warmup_epochs = 5;
    schedule.warmup_start = 0.25;
    schedule.updates_per_epoch = 4;
    for (int i = 0; i < 20; i++)
        expect(&schedule, i / 4.0, (i < 12 ? 0.004 : 0.0004) * (0.25 + 0.75 * (i + 1) / 20));
    expect(&schedule, 5, 0.0004);
    expect(&schedule, 7, 0.00004);
}

static void test_warmup_as_long_as_the_run(void **state)
{
    (void)state;
    for (double warmup = 3; warmup < 1000; warmup *= 7) {
        lk_schedule cosine = {
            .kind = LK_SCHEDULE_COSINE, .base = 0.2, .epochs = 3, .warmup_epochs = warmup, .updates_per_epoch = 2};
        for (int i = 0; i < 6; i++) {
            double want = 0.1 * (1 + cos(acos(-1.0) * i / 6)) * (i + 1) / (2 * warmup);
            assert_true(fabs(lk_schedule_rate(&cosine, i / 2.0) - want) < 1e-16);
        }
    }
}

/* (i + 1) / n of the way in update i, in whole numbers: the last update of warm-up has exactly the full rate. */
static void test_warmup_by_updates(void **state)
{
    (void)state;
    lk_schedule schedule = {.base = 0.3, .warmup_epochs = 3};
    for (int updates = 1; updates <= 500; updates++) {
        int n = 3 * updates;
        schedule.updates_per_epoch = updates;
        for (int i = 0; i <= n; i++) {
            double rate = lk_schedule_rate(&schedule, (double)(i / updates) + (double)(i % updates) / updates);
            assert_true(i < n - 1 ? rate > 0 && rate < 0.3 : rate == 0.3);
            assert_true(fabs(rate - 0.3 * (i < n ? i + 1 : n) / n) < 1e-16);
        }
    }
    /* From a share of the base rate on, for two and a half updates. */
    lk_schedule scaled = {.base = 0.8, .warmup_epochs = 0.5, .warmup_start = 0.25, .updates_per_epoch = 5};
    expect(&scaled, 0, 0.2 + 0.6 * 0.4);
    expect(&scaled, 0.2, 0.2 + 0.6 * 0.8);
    expect(&scaled, 0.4, 0.8);
    expect(&scaled, 0.6, 0.8);
}

static void refuse(const char *text, const char *message)
{
    lk_schedule schedule = {.n_steps = 1, .at = {7}, .factor = {0.5}};
    lk_error_clear();
    assert_int_equal(lk_schedule_parse_steps(text, &schedule), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), message);
    assert_true(schedule.n_steps == 1 && schedule.at[0] == 7 && schedule.factor[0] == 0.5);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("", "schedule '', column 1: expected an epoch, a number");
    refuse("15", "schedule '15', column 3: expected ':' after an epoch");
    refuse("15:", "schedule '15:', column 4: expected a factor, a number");
    refuse("15:0.1,", "schedule '15:0.1,', column 8: expected an epoch, a number");
    refuse("15:0.1;25:0.01", "schedule '15:0.1;25:0.01', column 7: expected ',' or the end after a factor");
    refuse("15:0.1, 25:0.01", "schedule '15:0.1, 25:0.01', column 8: expected an epoch, a number");
    refuse("15:nan", "schedule '15:nan', column 4: expected a factor, a number");
    refuse("15:-0.5", "schedule '15:-0.5', column 4: a factor is -0.5; it must be a finite number of 0 or more");
    refuse("1e999:1", "schedule '1e999:1', column 1: an epoch is 1e999; it must be a finite number of 0 or more");
    refuse("25:0.1,15:0.01", "schedule '25:0.1,15:0.01', column 8: epoch 15 comes after epoch 25; epochs must ascend");
}

static void test_too_many(void **state)
{
    (void)state;
    char text[33 * 8] = "";
    int used = 0;
    for (int i = 0; i < 33; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%d:0.5", i ? "," : "", i);
    lk_schedule schedule = {.kind = LK_SCHEDULE_STEP};
    lk_error_clear();
    assert_int_equal(lk_schedule_parse_steps(text, &schedule), LK_ERR_ARGUMENT);
    text[used - 7] = '\0'; /* ",32:0.5" */
    lk_error_clear();
    assert_int_equal(lk_schedule_parse_steps(text, &schedule), LK_OK);
    assert_int_equal(schedule.n_steps, 32);
}

/* A decimal comma in the caller's locale changes nothing. */
static void test_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        print_message("SKIP: locale de_DE.UTF-8 is not installed\n");
        skip();
    }
    lk_schedule schedule = parsed("1.5:0.25", 1);
    setlocale(LC_NUMERIC, "C");
    expect(&schedule, 1.5, 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_lab_table),
        cmocka_unit_test(test_keras_table),
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_warmup),
        cmocka_unit_test(test_warmup_by_updates),
        cmocka_unit_test(test_step_within_warmup),
        cmocka_unit_test(test_warmup_as_long_as_the_run),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
