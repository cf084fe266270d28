/* Conversions between row-major activations and vectors of images or channels. */
#include "cpu/vector/interleave.h"

#include "base/bf16.h"
#include "cpu/isa.h"
#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

/* The shapes have pixels enough for overlapping tiles, and lanes missing from one half of sixteen and from both. */
static const test_shape shapes[] = {{32, 50, 16}, {9, 3, 7},  {8, 20, 1}, {1, 1, 131}, {11, 32, 13}, {17, 16, 8},
                                    {3, 48, 9},   {16, 5, 0}, {0, 8, 9},  {27, 2, 20}, {48, 3, 37}};

static lk_interleaving interleaving_of(test_layout layout, test_shape s)
{
    int64_t lanes = test_lanes(layout);
    return lanes > 0 ? lk__interleaving_of_images(s.images, s.channels, s.pixels, lanes)
                     : lk__interleaving_of_channels(s.images, s.channels, s.pixels, test_block(layout));
}

/* Skips the test if the processor lacks the instruction set. */
static const lk_interleaver *interleaver_of(const lk_isa *isa)
{
    if (!lk__isa_runs(isa)) {
        print_message("SKIP: this processor does not have %s\n", isa->name);
        skip();
    }
    return isa->f32->interleaver;
}

static float *numbers(int64_t count)
{
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(i + 1);
    return x;
}

/* A guard value follows each result: tiles must not write past the end. */
static void expect_both_ways(const lk_interleaver *t, test_layout layout, test_shape s)
{
    lk_interleaving shape = interleaving_of(layout, s);
    int64_t count = s.images * s.channels * s.pixels, size = test_size(layout, s);
    float *plain = numbers(count), *back = numbers(count), *vectors = numbers(size);
    for (int64_t i = 0; i < size; i++)
        vectors[i] = NAN;
    vectors[size] = back[count] = -1;
    memset(back, 0, (size_t)count * sizeof *back);
    t->interleave(&shape, plain, vectors);
    expect_arranged(layout, s, vectors, plain);
    t->deinterleave(&shape, vectors, back);
    assert_memory_equal(back, plain, (size_t)count * sizeof *back);
    assert_true(vectors[size] == -1 && back[count] == -1);
    free(plain);
    free(back);
    free(vectors);
}

static void elements_go_where_the_layout_has_them(void **state)
{
    static const test_layout layouts[] = {BLOCKS_OF_8, BLOCKS_OF_16, IMAGES, WIDE_IMAGES};
    const lk_interleaver *t = interleaver_of(*state);
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (test_lanes(layouts[l]) > 0 || shapes[i].channels % test_block(layouts[l]) == 0)
                expect_both_ways(t, layouts[l], shapes[i]);
}

/* --- bf16 in pairs ------------------------------------------------------------------------------------------------ */

enum { LANES = 16 };

/* Checks the words of sixteen images against row-major bf16, and that padding is 0. */
static void expect_words(test_shape s, const uint32_t *words, const uint16_t *plain)
{
    int64_t pairs = (s.channels + 1) / 2;
    for (int64_t n = 0; n < rounded_up(s.images, LANES); n++)
        for (int64_t c = 0; c < 2 * pairs; c++)
            for (int64_t p = 0; p < s.pixels; p++) {
                uint32_t word = words[((n / LANES * s.pixels + p) * pairs + c / 2) * LANES + n % LANES];
                bool is_padding = n >= s.images || c >= s.channels;
                assert_int_equal(c % 2 ? word >> 16 : word & 0xFFFF,
                                 is_padding ? 0 : plain[test_offset(PLAIN, s, n, c, p)]);
            }
}

static void pairs_both_ways(const lk_interleaver *t, test_shape s)
{
    lk_interleaving shape = lk__interleaving_of_images(s.images, s.channels, s.pixels, LANES);
    int64_t count = s.images * s.channels * s.pixels,
            size = rounded_up(s.images, LANES) * ((s.channels + 1) / 2) * s.pixels;
    float *numbers_of_plain = numbers(count), *vectors = numbers(test_size(WIDE_IMAGES, s));
    uint16_t *plain = malloc((size_t)(count + 1) * 2), *back = calloc((size_t)(count + 1), 2);
    uint32_t *words = malloc((size_t)(size + 1) * 4);
    assert_true(plain && back && words);
    lk__bf16_round(numbers_of_plain, plain, count);
    memset(words, 0x5a, (size_t)(size + 1) * 4);
    back[count] = 0x5a5a;
    t->interleave_pairs(&shape, plain, words);
    expect_words(s, words, plain);
    t->deinterleave_pairs(&shape, words, back);
    assert_memory_equal(back, plain, (size_t)count * 2);
    lk__bf16_widen(plain, numbers_of_plain, count);
    t->widen_pairs(&shape, words, vectors);
    expect_arranged(WIDE_IMAGES, s, vectors, numbers_of_plain);
    memset(words, 0x5a, (size_t)size * 4);
    t->round_pairs(&shape, vectors, words);
    expect_words(s, words, plain);
    assert_true(words[size] == 0x5a5a5a5a && back[count] == 0x5a5a);
    free(numbers_of_plain);
    free(vectors);
    free(plain);
    free(back);
    free(words);
}

static void pairs_go_where_the_layout_has_them(void **state)
{
    const lk_interleaver *t = interleaver_of(*state);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        pairs_both_ways(t, shapes[i]);
}

int main(void)
{
    const lk_isa *isas[] = {&lk__isa_avx2, &lk__isa_avx512, &lk__isa_emulated};
    int failed = 0;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        void *isa = (void *)(uintptr_t)isas[i];
        const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(elements_go_where_the_layout_has_them, isa),
                                           cmocka_unit_test_prestate(pairs_go_where_the_layout_has_them, isa)};
        failed += cmocka_run_group_tests_name(isas[i]->name, tests, NULL, NULL);
    }
    return failed;
}
