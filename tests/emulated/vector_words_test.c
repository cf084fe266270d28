/* Elements and words of bf16: the emulated ones and the processor's own have the bits that Intel's manual defines. */
#include "vector_words.h"

#include "base/bf16.h"
#include "cpu/isa.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { LANES = 16, ROUNDS = 4000 };

#define ALIGNED __attribute__((aligned(64)))

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

static uint16_t rounded(float a)
{
    uint16_t result;
    a = flushed(a);
    lk__bf16_round_plain(&a, &result, 1);
    return result;
}

static float products_added(const uint16_t a[2], const uint16_t b[2], float sum)
{
    sum = flushed(sum);
    for (int i = 1; i >= 0; i--)
        sum = flushed(fmaf(flushed(widened(a[i])), flushed(widened(b[i])), sum));
    return sum;
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

/* Returns any float: half of the numbers have a magnitude near 1, some are tiny, halfway between two bf16, or
 * infinite. */
static float some_float(uint32_t *state)
{
    uint32_t bits = random_bits(state), kind = random_bits(state) % 16;
    float a;
    if (kind < 8)
        bits = (bits & 0x807fffff) | (120 + bits % 15) << 23;
    else if (kind == 8)
        bits &= 0x80ffffff; /* around FLT_MIN */
    else if (kind == 9)
        bits = (bits & 0xffff0000) | 0x8000;
    else if (kind == 10)
        bits = (bits & 0x80000000) | 0x7f800000;
    else if (kind == 11)
        bits &= 0x80000000;
    memcpy(&a, &bits, sizeof a);
    return a;
}

static void fill(float *x, int count, uint32_t *state)
{
    for (int i = 0; i < count; i++)
        x[i] = some_float(state);
}

static void fill_elements(uint16_t *x, int count, uint32_t *state)
{
    for (int i = 0; i < count; i++) {
        float a = some_float(state);
        uint32_t bits;
        memcpy(&bits, &a, sizeof bits);
        x[i] = (uint16_t)(bits >> 16);
    }
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static void check_conversions(const vector_words *words, uint32_t *state)
{
    ALIGNED float wide[2][LANES], back[LANES];
    ALIGNED uint16_t narrow[2][LANES], pairs[2 * LANES];
    fill(wide[0], 2 * LANES, state);
    fill_elements(narrow[0], 2 * LANES, state);
    words->join_two((const uint16_t(*)[LANES])narrow, pairs);
    for (int i = 0; i < 2 * LANES; i++)
        assert_int_equal(pairs[i], narrow[i % 2][i / 2]);
    words->widen(narrow[0], back);
    for (int i = 0; i < LANES; i++)
        assert_true(same(back[i], widened(narrow[0][i])));
    words->round(wide[0], narrow[0]);
    words->round_two((const float(*)[LANES])wide, pairs);
    for (int i = 0; i < 2 * LANES; i++) {
        assert_int_equal(pairs[i], rounded(wide[i % 2][i / 2]));
        if (i < LANES)
            assert_int_equal(narrow[0][i], rounded(wide[0][i]));
    }
}

static void expect_sum(const uint16_t *a, const uint16_t *b, float before, float after)
{
    float want = products_added(a, b, before);
    if (!same(after, want))
        fail_msg("%a + %a * %a + %a * %a is %a, not %a", (double)before, (double)widened(a[1]), (double)widened(b[1]),
                 (double)widened(a[0]), (double)widened(b[0]), (double)after, (double)want);
}

static void check_products(const vector_words *words, uint32_t *state)
{
    ALIGNED uint16_t a[2 * LANES], b[2 * LANES];
    ALIGNED float before[LANES], sum[LANES];
    fill_elements(a, 2 * LANES, state);
    fill_elements(b, 2 * LANES, state);
    fill(before, LANES, state);
    memcpy(sum, before, sizeof sum);
    words->multiply(a, b, sum);
    for (int i = 0; i < LANES; i++)
        expect_sum(a + 2 * i, b + 2 * i, before[i], sum[i]);
    memcpy(sum, before, sizeof sum);
    words->multiply_one(a + 6, b, sum);
    for (int i = 0; i < LANES; i++)
        expect_sum(a + 6, b + 2 * i, before[i], sum[i]);
    memcpy(sum, before, sizeof sum);
    words->multiply_first(a + 7, b, sum);
    for (int i = 0; i < LANES; i++)
        expect_sum((const uint16_t[]){a[7], 0}, b + 2 * i, before[i], sum[i]);
}

static void check_halves(const vector_words *words, uint32_t *state)
{
    ALIGNED uint16_t a[2 * LANES], b[2 * LANES], chosen[2 * LANES], grouped[2][2 * LANES];
    ALIGNED float wide[2][LANES];
    uint16_t masks[2] = {(uint16_t)random_bits(state), (uint16_t)random_bits(state)};
    fill_elements(a, 2 * LANES, state);
    fill_elements(b, 2 * LANES, state);
    words->parts(a, wide);
    words->where(masks, a, chosen);
    words->regroup(a, b, grouped[0], grouped[1]);
    for (int i = 0; i < 2 * LANES; i++) {
        assert_true(same(wide[i % 2][i / 2], widened(a[i])));
        assert_int_equal(chosen[i], masks[i % 2] >> i / 2 & 1 ? a[i] : 0);
        assert_int_equal(grouped[i % 2][i - i % 2], a[i]);
        assert_int_equal(grouped[i % 2][i - i % 2 + 1], b[i]);
    }
}

static void check(const vector_words *words, const lk_isa *isa)
{
    uint32_t state = 1;
    if (!lk__isa_runs(isa)) {
        print_message("SKIP: this processor does not have %s\n", isa->name);
        skip();
    }
    for (int i = 0; i < ROUNDS; i++) {
        check_conversions(words, &state);
        check_products(words, &state);
        check_halves(words, &state);
    }
}

static void emulated_words_are_as_defined(void **state)
{
    (void)state;
    check(&vector_words_emulatedbf16, &lk__isa_emulatedbf16);
}

static void the_processors_words_are_as_defined(void **state)
{
    (void)state;
    check(&vector_words_avx512bf16, &lk__isa_avx512bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulated_words_are_as_defined),
        cmocka_unit_test(the_processors_words_are_as_defined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
