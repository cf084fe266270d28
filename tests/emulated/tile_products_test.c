/* Products of tiles: the emulated ones and the processor's own have the bits that Intel's manual defines. */
#include "tile_products.h"

#include "base/bf16.h"
#include "cpu/isa.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Rows lie a little further apart than they are long. */
enum { SIDE = 16, PAIRS = 16, STRIDE = 68, ELEMENTS = STRIDE / 2, FLOATS = STRIDE / 4, ROUNDS = 300 };

/* --- the definition ----------------------------------------------------------------------------------------------- */

static float flushed(float a)
{
    return fabsf(a) < FLT_MIN ? copysignf(0, a) : a;
}

static float widened(uint16_t a)
{
    float wide;
    lk__bf16_widen_plain(&a, &wide, 1);
    return wide;
}

/* Returns a b + c. A result is too small if it is below FLT_MIN once it is rounded to 24 bits, even if subnormal
 * numbers are too coarse for it and would round it up to FLT_MIN. So a result near that limit is computed again,
 * scaled. */
static float fused(float a, float b, float c)
{
    const float scale = 0x1p64F;
    a = flushed(a);
    b = flushed(b);
    c = flushed(c);
    float result = fmaf(a, b, c);
    if (!(fabsf(result) <= FLT_MIN))
        return result;
    float scaled = fabsf(a) < fabsf(b) ? fmaf(a * scale, b, c * scale) : fmaf(a, b * scale, c * scale);
    return fabsf(scaled) < FLT_MIN * scale ? copysignf(0, scaled) : result;
}

static float added(float a, float b)
{
    return fused(a, 1, b);
}

static float defined(const uint16_t *left, const uint16_t *right, float sum)
{
    float firsts = 0, seconds = 0;
    for (int k = 0; k < PAIRS; k++) {
        firsts = fused(widened(left[2 * k]), widened(right[k * ELEMENTS]), firsts);
        seconds = fused(widened(left[2 * k + 1]), widened(right[k * ELEMENTS + 1]), seconds);
    }
    return added(sum, added(firsts, seconds));
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static uint32_t random_bits(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16 ^ *state << 16;
}

/* Returns a float of magnitude around 2^exponent, now and then a zero, a number around FLT_MIN or an infinity. */
static float some_float(uint32_t exponent, uint32_t *state)
{
    uint32_t bits = random_bits(state), kind = random_bits(state) % 512;
    float a;
    bits = (bits & 0x807fffff) | (exponent + bits % 5) << 23;
    if (kind < 8)
        bits &= 0x80000000;
    else if (kind < 16)
        bits &= 0x80ffffff;
    else if (kind == 16)
        bits = (bits & 0x80000000) | 0x7f800000;
    memcpy(&a, &bits, sizeof a);
    return a;
}

static uint16_t some_element(uint32_t exponent, uint32_t *state)
{
    float a = some_float(exponent, state);
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* Exponents are biased by 127. Products of the second kind of round are around FLT_MIN, so that sums are flushed. */
static void check_round(tile_products products, bool tiny, uint32_t *state)
{
    uint16_t left[2][SIDE * ELEMENTS], right[2][SIDE * ELEMENTS];
    float before[4][SIDE * FLOATS], after[4][SIDE * FLOATS];
    for (int i = 0; i < SIDE * ELEMENTS; i++)
        for (int t = 0; t < 2; t++) {
            left[t][i] = some_element(tiny ? 62 : 125, state);
            right[t][i] = some_element(tiny ? 63 : 125, state);
        }
    for (int i = 0; i < 4 * SIDE * FLOATS; i++)
        before[i / (SIDE * FLOATS)][i % (SIDE * FLOATS)] = some_float(tiny ? 1 : 127, state);
    memcpy(after, before, sizeof after);
    products(&(tile_matrices){
        {left[0], left[1]}, {right[0], right[1]}, {{after[0], after[1]}, {after[2], after[3]}}, STRIDE});
    for (int t = 0; t < 4; t++)
        for (int r = 0; r < SIDE; r++) {
            for (int c = 0; c < SIDE; c++) {
                float want = defined(left[t / 2] + r * ELEMENTS, right[t % 2] + 2 * c, before[t][r * FLOATS + c]);
                if (!same(after[t][r * FLOATS + c], want))
                    fail_msg("tile %d, row %d, column %d: %a is %a, not %a", t, r, c, (double)before[t][r * FLOATS + c],
                             (double)after[t][r * FLOATS + c], (double)want);
            }
            assert_true(same(after[t][r * FLOATS + SIDE], before[t][r * FLOATS + SIDE])); /* between the rows */
        }
}

static void check(tile_products products, const lk_isa *isa)
{
    uint32_t state = 1;
    if (!lk__isa_runs(isa)) {
        print_message("SKIP: this processor does not have %s\n", isa->name);
        skip();
    }
    for (int i = 0; i < ROUNDS; i++)
        check_round(products, i % 2 == 1, &state);
}

static void emulated_products_are_as_defined(void **state)
{
    (void)state;
    check(tile_products_emulatedamxbf16, &lk__isa_emulatedamxbf16);
}

static void the_processors_products_are_as_defined(void **state)
{
    (void)state;
    check(tile_products_amxbf16, &lk__isa_amxbf16);
}

/* Returns the element at row and column 0 of a product of tiles that begin with two pairs; the other pairs are 0. */
static float of_two_pairs(const uint16_t left_pairs[4], const uint16_t right_pairs[4])
{
    uint16_t left[SIDE * ELEMENTS] = {0}, right[SIDE * ELEMENTS] = {0};
    float sums[SIDE * FLOATS] = {0};
    if (!lk__isa_runs(&lk__isa_emulatedamxbf16))
        skip();
    for (int i = 0; i < 4; i++) {
        left[i] = left_pairs[i];
        right[i / 2 * ELEMENTS + i % 2] = right_pairs[i];
    }
    tile_products_emulatedamxbf16(&(tile_matrices){{left, left}, {right, right}, {{sums, sums}, {sums, sums}}, STRIDE});
    return sums[0];
}

/* In one chain 2^24 + 1 + 1 would be 2^24. */
static void first_and_second_elements_have_sums_of_their_own(void **state)
{
    (void)state;
    const uint16_t one = 0x3f80, large = 0x4b80 /* 2^24 */;
    assert_float_equal(of_two_pairs((uint16_t[]){large, one, 0, one}, (uint16_t[]){one, one, 0, one}), 0x1p24F + 2, 0);
}

/* Subnormal numbers would round FLT_MIN - 2^-150 up to FLT_MIN. */
static void a_sum_just_below_the_least_number_is_zero(void **state)
{
    (void)state;
    const uint16_t a = 0x2000 /* 2^-63 */, b = 0x1a00 /* 2^-75 */, minus_b = 0x9a00;
    assert_float_equal(of_two_pairs((uint16_t[]){a, 0, 0, 0}, (uint16_t[]){a, 0, 0, 0}), FLT_MIN, 0);
    assert_float_equal(of_two_pairs((uint16_t[]){a, 0, b, 0}, (uint16_t[]){a, 0, minus_b, 0}), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulated_products_are_as_defined),
        cmocka_unit_test(the_processors_products_are_as_defined),
        cmocka_unit_test(first_and_second_elements_have_sums_of_their_own),
        cmocka_unit_test(a_sum_just_below_the_least_number_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
