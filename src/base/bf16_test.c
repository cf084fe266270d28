/* Widening and rounding: every bf16 number, and f32 numbers equal to, close to and between them. */
#include "base/bf16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NUMBERS = 1 << 16 };

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void widens_every_number(void **state)
{
    (void)state;
    uint16_t *all = malloc(NUMBERS * sizeof *all), *back = malloc(NUMBERS * sizeof *back);
    float *wide = malloc(NUMBERS * sizeof *wide), *plain = malloc(NUMBERS * sizeof *plain);
    assert_true(all && back && wide && plain);
    for (int i = 0; i < NUMBERS; i++)
        all[i] = (uint16_t)i;
    lk__bf16_widen(all, wide, NUMBERS);
    lk__bf16_widen_plain(all, plain, NUMBERS);
    assert_memory_equal(wide, plain, NUMBERS * sizeof *wide);
    lk__bf16_round(wide, back, NUMBERS);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        assert_true(bits_of(wide[i]) == i << 16);
        bool nan = (i & 0x7FFFu) > 0x7F80u;
        assert_int_equal(back[i], nan ? i | 0x40u : i);
    }
    free(all);
    free(back);
    free(wide);
    free(plain);
}

/* Returns the value of bf16 bits; infinity counts as the number that follows the largest. */
static double value_of(uint32_t bf16)
{
    double sign = bf16 & 0x8000u ? -1 : 1;
    return (bf16 & 0x7FFFu) == 0x7F80u ? sign * 0x1p128 : (double)float_of(bf16 << 16);
}

/* Rounds by distance, in f64, where all of it is exact. */
static uint16_t nearest(uint32_t bits)
{
    uint32_t low = bits >> 16, high = low + 1;
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(low | 0x40u);
    if ((bits & 0xFFFFu) == 0)
        return (uint16_t)low;
    double value = (double)float_of(bits), below = fabs(value - value_of(low)), above = fabs(value_of(high) - value);
    return (uint16_t)(below < above || (below == above && low % 2 == 0) ? low : high);
}

/* Offsets in f32 bits from each bf16 number: on it, just beyond, around the middle, and just before the next. */
static void rounds_to_nearest_even(void **state)
{
    (void)state;
    static const uint32_t tails[] = {0, 1, 0x1234, 0x7FFF, 0x8000, 0x8001, 0xC0DE, 0xFFFF};
    enum { TAILS = sizeof tails / sizeof *tails };
    float *x = malloc(NUMBERS * TAILS * sizeof *x);
    uint16_t *y = malloc(NUMBERS * TAILS * sizeof *y), *plain = malloc(NUMBERS * TAILS * sizeof *plain);
    assert_true(x && y && plain);
    for (uint32_t i = 0; i < NUMBERS * TAILS; i++) {
        uint32_t bits = i / TAILS << 16 | tails[i % TAILS];
        memcpy(&x[i], &bits, sizeof bits);
    }
    lk__bf16_round(x, y, NUMBERS * TAILS);
    lk__bf16_round_plain(x, plain, NUMBERS * TAILS);
    assert_memory_equal(y, plain, NUMBERS * TAILS * sizeof *y);
    for (uint32_t i = 0; i < NUMBERS * TAILS; i++) {
        uint32_t bits = i / TAILS << 16 | tails[i % TAILS];
        if (y[i] != nearest(bits))
            fail_msg("%08x is rounded to %04x, not %04x", bits, y[i], nearest(bits));
    }
    free(x);
    free(y);
    free(plain);
}

/* For any start and count, neither vectors nor the tail write past the end. */
static void any_number_of_elements(void **state)
{
    (void)state;
    enum { MOST = 70, GUARD = 0x5A5A };
    float x[MOST + 2], wide[MOST + 2];
    uint16_t y[MOST + 2];
    for (int i = 0; i < MOST + 2; i++)
        x[i] = (float)(i * 7919 % 257) / 129 - 1;
    for (int first = 0; first < 2; first++) {
        for (int n = 0; n <= MOST; n++) {
            y[first + n] = GUARD;
            wide[first + n] = GUARD;
            lk__bf16_round(x + first, y + first, n);
            lk__bf16_widen(y + first, wide + first, n);
            assert_int_equal(y[first + n], GUARD);
            assert_true(wide[first + n] == (float)GUARD);
            for (int i = first; i < first + n; i++) {
                assert_int_equal(y[i], nearest(bits_of(x[i])));
                assert_true(bits_of(wide[i]) == (uint32_t)y[i] << 16);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widens_every_number),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(any_number_of_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
