#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/number.h"
#include "io/bytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fixed_numbers(void **state)
{
    (void)state;
    const struct {
        double value;
        int decimals;
        const char *text;
    } cases[] = {{0, 0, "0"},
                 {12.5, 1, "12.5"},
                 {-0.004, 2, "0.00"},
                 {-3.25, 2, "-3.25"},
                 {0.999, 2, "1.00"},
                 {7, 3, "7.000"},
                 {1e14 + 0.5, 1, "100000000000000.5"},
                 {-1234567, 0, "-1234567"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[LK__FIXED_DIGITS];
        lk__number_fixed(cases[i].value, cases[i].decimals, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void utf8_goes_through_code_points(void **state)
{
    (void)state;
    const uint32_t points[] = {'a', 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF, 0xD7FF, 0xE000};
    lk_bytes bytes = {0};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        lk__bytes_utf8(&bytes, points[i]);
    lk__bytes_char(&bytes, '\0');
    const char *text = (const char *)bytes.data;
    assert_int_equal(lk__utf8_length(text), sizeof points / sizeof *points);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        assert_int_equal(lk__utf8_next(&text), points[i]);
    assert_int_equal(lk__utf8_next(&text), 0);
    lk__bytes_free(&bytes);
}

static void what_is_not_utf8_is_replaced(void **state)
{
    (void)state;
    /* A lone continuation byte, an overlong slash, a surrogate, a code point beyond U+10FFFF, a cut character. */
    const char *const texts[] = {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\xFF"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = texts[i];
        assert_int_equal(lk__utf8_next(&text), 0xFFFD);
        assert_ptr_equal(text, texts[i] + 1);
    }
}

static void a_failed_allocation_is_kept(void **state)
{
    (void)state;
    lk_bytes bytes = {0};
    lk__bytes_text(&bytes, "kept");
    lk__mem_fail_at(0);
    for (int i = 0; i < 100; i++)
        lk__bytes_text(&bytes, "more and more");
    lk__mem_fail_at(-1);
    assert_int_equal(lk__bytes_status(&bytes), LK_ERR_MEMORY);
    lk_error_clear();
    assert_memory_equal(bytes.data, "kept", 4);
    lk__bytes_clear(&bytes);
    lk__bytes_text(&bytes, "again");
    assert_int_equal(lk__bytes_status(&bytes), LK_OK);
    assert_int_equal(bytes.size, 5);
    lk__bytes_free(&bytes);
}

/* Zeros at either end do not count. */
static int digits_in(const char *text)
{
    int digits = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        zeros += *text == '0' && digits > 0;
        if (*text > '0' && *text <= '9') {
            digits += zeros + 1;
            zeros = 0;
        }
    }
    return digits;
}

/* One digit after the point is always written. */
static void is_shortest(double value)
{
    lk_bytes bytes = {0};
    char text[64];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*e", digits++, value);
    while (strtod(text, NULL) != value);
    lk__bytes_real(&bytes, value);
    lk__bytes_char(&bytes, '\0');
    assert_int_equal(lk__bytes_status(&bytes), LK_OK);
    assert_true(strtod((const char *)bytes.data, NULL) == value);
    if (digits_in((const char *)bytes.data) > (digits < 2 ? 2 : digits_in(text)))
        fail_msg("%s is not as short as %s", (const char *)bytes.data, text);
    lk__bytes_free(&bytes);
}

static void real_numbers_are_shortest(void **state)
{
    (void)state;
    static const double some[] = {1,
                                  0.1,
                                  100,
                                  123456,
                                  9.5,
                                  1e15,
                                  9007199254740993,
                                  0.3,
                                  1.0 / 3,
                                  1e300,
                                  5e-324,
                                  2.5e-310,
                                  2.2250738585072014e-308,
                                  1.7976931348623157e308,
                                  999999999999999.9,
                                  1e23,
                                  9.999e22};
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        is_shortest(some[i]);
    for (int i = 0; i < 4000; i++) {
        double value, few;
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t bits = random & INT64_MAX;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value) && value > 0)
            is_shortest(value);
        few = (double)(random >> 40) / (i % 2 ? 1000 : 4096);
        if (few > 0)
            is_shortest(few);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_numbers),
        cmocka_unit_test(real_numbers_are_shortest),
        cmocka_unit_test(utf8_goes_through_code_points),
        cmocka_unit_test(what_is_not_utf8_is_replaced),
        cmocka_unit_test(a_failed_allocation_is_kept),
    };
    return cmocka_run_group_tests_name("bytes", tests, NULL, NULL);
}
