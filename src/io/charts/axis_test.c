#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/charts/axis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The numbers at all ticks, each followed by a space. */
static void all_numbers(const lk_axis *axis, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < axis->ticks; i++) {
        char number[LK__TICK_TEXT];
        lk__axis_text(axis, i, number);
        snprintf(text + strlen(text), size - strlen(text), "%s ", number);
    }
}

static void ticks_are_at_round_numbers(void **state)
{
    (void)state;
    const struct {
        double min, max;
        int most;
        bool whole, rounded;
        const char *numbers;
    } cases[] = {
        {0, 1, 6, false, false, "0.0 0.2 0.4 0.6 0.8 1.0 "},
        {0.13, 0.94, 8, false, true, "0.0 0.2 0.4 0.6 0.8 1.0 "},
        {1, 40, 10, true, false, "5 10 15 20 25 30 35 40 "},
        {1, 2, 10, true, false, "1 2 "},
        {-3, 3, 7, false, false, "-3 -2 -1 0 1 2 3 "},
        {0, 3e-5, 4, false, false, "0.00000 0.00001 0.00002 0.00003 "},
        {0, 3e-9, 4, false, false, "0 1e-09 2e-09 3e-09 "},
        {0, 25e6, 6, false, false, "0 5e+06 1.0e+07 1.5e+07 2.0e+07 2.5e+07 "},
        {1e5, 1e5 + 1, 6, false, false, "100000.0 100000.2 100000.4 100000.6 100000.8 100001.0 "},
        {5, 5, 6, false, true, "4.6 4.8 5.0 5.2 5.4 "},
        {0, 0, 4, false, true, "-0.5 0.0 0.5 "},
        {INFINITY, -INFINITY, 4, false, true, "0.0 0.5 1.0 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_axis axis;
        char numbers[500];
        lk__axis_make(&axis, cases[i].min, cases[i].max, cases[i].most, cases[i].whole, cases[i].rounded,
                      cases[i].rounded);
        all_numbers(&axis, numbers, sizeof numbers);
        assert_string_equal(numbers, cases[i].numbers);
    }
}

/* For any range there are a few ticks inside the axis, and the axis contains the range. */
static void ticks_lie_inside(void **state)
{
    (void)state;
    const double centers[] = {0, 1, -7.3, 1e-12, 123456.789, -1e150, 1e-150};
    for (size_t c = 0; c < sizeof centers / sizeof *centers; c++) {
        for (double width = 5e-324; width < 1e150; width *= 13) {
            for (int rounded = 0; rounded < 2; rounded++) {
                lk_axis axis;
                double min = centers[c], max = centers[c] + width;
                lk__axis_make(&axis, min, max, 7, false, rounded, rounded);
                double slack = (axis.max - axis.min) * 1e-6;
                assert_true(axis.min < axis.max && axis.min <= min + slack && axis.max >= max - slack);
                assert_true(axis.ticks >= 1 && axis.ticks <= 7);
                assert_true(lk__axis_tick(&axis, 0) >= axis.min - slack);
                assert_true(lk__axis_tick(&axis, axis.ticks - 1) <= axis.max + slack);
                for (int i = 0; i < axis.ticks; i++) {
                    char text[LK__TICK_TEXT];
                    lk__axis_text(&axis, i, text);
                    assert_true(strlen(text) > 0 && strlen(text) < 24);
                }
            }
        }
    }
}

static void numbers_have_four_digits(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0.000"},
                 {0.91234, "0.9123"},
                 {25310.7, "25311"},
                 {12.3456, "12.35"},
                 {1234.5, "1235"},
                 {9999999, "9999999"},
                 {1.23456e12, "1.235e+12"},
                 {0.0001234567, "1.235e-04"},
                 {0.00123, "0.001230"},
                 {99999999, "1.000e+08"},
                 {0.99999, "1.000"},
                 {9.99996, "10.00"},
                 {9.9994e-5, "9.999e-05"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[LK__TICK_TEXT];
        lk__number_text(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_at_round_numbers),
        cmocka_unit_test(ticks_lie_inside),
        cmocka_unit_test(numbers_have_four_digits),
    };
    return cmocka_run_group_tests_name("axis", tests, NULL, NULL);
}
