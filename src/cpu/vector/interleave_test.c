/* Conversions between row-major activations and vectors of images or channels. */
#include "cpu/vector/interleave.h"

#include "base/avx2.h"
#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

/* The shapes have pixels enough for overlapping tiles, and lanes missing from one half of sixteen and from both. */
static const test_shape shapes[] = {{32, 50, 16}, {9, 3, 7},  {8, 20, 1}, {1, 1, 131}, {11, 32, 13},
                                    {17, 16, 8},  {3, 48, 9}, {16, 5, 0}, {0, 8, 9},   {27, 2, 20}};

static lk_interleaving interleaving_of(test_layout layout, test_shape s)
{
    int64_t lanes = test_lanes(layout);
    return lanes > 0 ? lk__interleaving_of_images(s.images, s.channels, s.pixels, lanes)
                     : lk__interleaving_of_channels(s.images, s.channels, s.pixels, test_block(layout));
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
static void expect_both_ways(test_layout layout, test_shape s)
{
    lk_interleaving shape = interleaving_of(layout, s);
    int64_t count = s.images * s.channels * s.pixels, size = test_size(layout, s);
    float *plain = numbers(count), *back = numbers(count), *vectors = numbers(size);
    for (int64_t i = 0; i < size; i++)
        vectors[i] = NAN;
    vectors[size] = back[count] = -1;
    memset(back, 0, (size_t)count * sizeof *back);
    lk__interleave(&shape, plain, vectors);
    expect_arranged(layout, s, vectors, plain);
    lk__deinterleave(&shape, vectors, back);
    assert_memory_equal(back, plain, (size_t)count * sizeof *back);
    assert_true(vectors[size] == -1 && back[count] == -1);
    free(plain);
    free(back);
    free(vectors);
}

static void elements_go_where_the_layout_has_them(void **state)
{
    static const test_layout layouts[] = {BLOCKS_OF_8, BLOCKS_OF_16, IMAGES, WIDE_IMAGES};
    (void)state;
    if (!lk__has_avx2()) {
        print_message("SKIP: this processor has no AVX2\n");
        skip();
    }
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (test_lanes(layouts[l]) > 0 || shapes[i].channels % test_block(layouts[l]) == 0)
                expect_both_ways(layouts[l], shapes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(elements_go_where_the_layout_has_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
