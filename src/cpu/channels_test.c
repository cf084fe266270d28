/* Sums over channels and affine functions: the same numbers in every layout. */
#include "cpu/channels.h"

#include "cpu/layouts_testing.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_ENTRIES = 2048 };

static lk_channels shape_in(test_layout layout, test_shape s)
{
    switch (layout) {
    case PLAIN:
        return lk__channels_plain(s.images, s.channels, s.pixels);
    case LAST:
        return lk__channels_last(s.images, s.channels, s.pixels);
    case IMAGES:
    case WIDE_IMAGES:
        return lk__channels_lanes(s.images, s.channels, s.pixels, test_lanes(layout));
    default:
        return lk__channels_blocked(s.images, s.channels, s.pixels, test_block(layout));
    }
}

static int64_t count_of(test_shape s)
{
    return s.images * s.channels * s.pixels;
}

/* Numbers with a mean that is large compared with their deviation. */
static float *numbers(int64_t count, int seed)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = 100 + (float)((i * 7919 + seed * 104729) % 1009) / 512;
    return x;
}

/* Products are of x and z, or squares of x without z. */
static void expect_sums(test_layout layout, test_shape s, const float *x, const float *z)
{
    z = z ? z : x;
    lk_channels shape = shape_in(layout, s);
    double first[MOST_ENTRIES], second[MOST_ENTRIES], sums[MOST_ENTRIES], products[MOST_ENTRIES];
    float *in_x = test_arranged(layout, s, x, 0), *in_z = z == x ? in_x : test_arranged(layout, s, z, 0);
    assert_true(lk__channels_entries(&shape) <= MOST_ENTRIES);
    lk__channels_sums(&shape, in_x, in_z, first, second);
    lk__channels_fold(&shape, first, sums);
    lk__channels_fold(&shape, second, products);
    for (int64_t c = 0; c < s.channels; c++) {
        double sum = 0, product = 0;
        for (int64_t n = 0; n < s.images; n++)
            for (int64_t p = 0; p < s.pixels; p++) {
                int64_t at = test_offset(PLAIN, s, n, c, p);
                sum += (double)x[at];
                product += (double)x[at] * (double)z[at];
            }
        assert_true(fabs(sums[c] - sum) <= 1e-13 * sum);
        assert_true(fabs(products[c] - product) <= 1e-13 * product);
    }
    if (in_z != in_x)
        free(in_z);
    free(in_x);
}

typedef void (*check_fn)(test_layout layout, test_shape s, const float *x, const float *z);

/* Checks every shape in every layout, with z and without. `make` makes numbers from a seed. */
static void check_everywhere(check_fn check, float *(*make)(int64_t count, int seed), int seed)
{
    for (int i = 0; i < TEST_SHAPES; i++)
        for (int layout = 0; layout < TEST_LAYOUTS; layout++) {
            float *x = make(count_of(test_shapes[i]), seed), *z = make(count_of(test_shapes[i]), seed + 1);
            check((test_layout)layout, test_shapes[i], x, NULL);
            check((test_layout)layout, test_shapes[i], x, z);
            free(x);
            free(z);
        }
}

static void sums_are_of_each_channel(void **state)
{
    (void)state;
    check_everywhere(expect_sums, numbers, 1);
}

static void set_constants(test_shape s, double *a, double *b, double *c)
{
    for (int64_t i = 0; i < s.channels; i++) {
        a[i] = 1.25 + (double)i / 7;
        b[i] = -0.75 + (double)i / 3;
        c[i] = 10 - (double)i / 11;
    }
}

/* a x + b z + c, rounded once, or relu(a x + c - 10 + z) in separate steps. */
static float *expected_elements(test_shape s, const float *x, const float *z, bool relu)
{
    double a[MOST_ENTRIES], b[MOST_ENTRIES], c[MOST_ENTRIES];
    float *y = malloc((size_t)count_of(s) * sizeof *y);
    assert_non_null(y);
    set_constants(s, a, b, c);
    for (int64_t i = 0; i < count_of(s); i++) {
        int64_t channel = i / s.pixels % s.channels;
        double value = (double)x[i] * a[channel];
        if (relu) {
            y[i] = (float)(value + (c[channel] - 10));
            y[i] = z ? y[i] + z[i] : y[i];
            y[i] = y[i] <= 0 ? 0 : y[i];
        } else {
            value += z ? b[channel] * (double)z[i] : 0;
            y[i] = (float)(value + c[channel]);
        }
    }
    return y;
}

static void expect_applied(test_layout layout, test_shape s, const float *x, const float *z, bool relu)
{
    lk_channels shape = shape_in(layout, s);
    double values[3][MOST_ENTRIES], tables[3][MOST_ENTRIES];
    float *in_x = test_arranged(layout, s, x, 0), *in_z = z ? test_arranged(layout, s, z, 0) : NULL;
    float *y = test_arranged(layout, s, x, NAN), *want = expected_elements(s, x, z, relu);
    set_constants(s, values[0], values[1], values[2]);
    for (int64_t i = 0; relu && i < s.channels; i++)
        values[2][i] -= 10;
    for (int i = 0; i < 3; i++)
        lk__channels_spread(&shape, values[i], tables[i]);
    if (relu)
        lk__channels_affine_relu(&shape, in_x, in_z, tables[0], tables[2], y);
    else if (z)
        lk__channels_affine2(&shape, in_x, in_z, tables[0], tables[1], tables[2], y);
    else
        lk__channels_affine(&shape, in_x, tables[0], tables[2], y);
    expect_arranged(layout, s, y, want);
    free(in_x);
    free(in_z);
    free(y);
    free(want);
}

static void expect_affine(test_layout layout, test_shape s, const float *x, const float *z)
{
    expect_applied(layout, s, x, z, false);
}

static void affine_functions_have_the_same_bits_everywhere(void **state)
{
    (void)state;
    check_everywhere(expect_affine, numbers, 3);
}

/* --- with a relu -------------------------------------------------------------------------------------------------- */

/* Numbers of both signs, some of them 0. */
static float *signed_numbers(int64_t count, int seed)
{
    float *x = numbers(count, seed);
    for (int64_t i = 0; i < count; i++)
        x[i] = i % 11 == 0 ? 0 : x[i] - 101;
    return x;
}

static void expect_relu(test_layout layout, test_shape s, const float *x, const float *z)
{
    expect_applied(layout, s, x, z, true);
}

static void relu_has_the_bits_of_separate_steps(void **state)
{
    (void)state;
    check_everywhere(expect_relu, signed_numbers, 5);
}

/* Masking by `where` gives, bit for bit, the results for an x with zeros where `where` is not above 0. */
static void expect_where(test_layout layout, test_shape s, const float *where, const float *x, const float *z)
{
    lk_channels shape = shape_in(layout, s);
    size_t bytes = (size_t)lk__channels_entries(&shape) * sizeof(double);
    double values[3][MOST_ENTRIES], tables[3][MOST_ENTRIES], have[2][MOST_ENTRIES], want[2][MOST_ENTRIES];
    float *plain = malloc((size_t)count_of(s) * sizeof *plain);
    assert_non_null(plain);
    for (int64_t i = 0; i < count_of(s); i++)
        plain[i] = where[i] > 0 ? x[i] : 0;
    float *in_x = test_arranged(layout, s, x, 0), *in_z = test_arranged(layout, s, z, 0);
    float *in_where = test_arranged(layout, s, where, 0), *in_kept = test_arranged(layout, s, plain, 0);
    float *y = test_arranged(layout, s, x, NAN), *kept = test_arranged(layout, s, x, NAN);
    float *affine = expected_elements(s, plain, z, false);

    lk__channels_sums_where(&shape, in_where, in_x, in_z, have[0], have[1], NULL);
    lk__channels_sums(&shape, in_kept, in_z, want[0], want[1]);
    assert_memory_equal(have[0], want[0], bytes);
    assert_memory_equal(have[1], want[1], bytes);
    lk__channels_sums_where(&shape, in_where, in_x, in_z, have[0], have[1], kept);
    expect_arranged(layout, s, kept, plain);
    assert_memory_equal(have[0], want[0], bytes);
    assert_memory_equal(have[1], want[1], bytes);

    set_constants(s, values[0], values[1], values[2]);
    for (int i = 0; i < 3; i++)
        lk__channels_spread(&shape, values[i], tables[i]);
    lk__channels_affine2_where(&shape, in_where, in_x, in_z, tables[0], tables[1], tables[2], y);
    expect_arranged(layout, s, y, affine);

    float *all[] = {plain, in_x, in_z, in_where, in_kept, y, kept, affine};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void what_does_not_count_is_zero(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_SHAPES; i++)
        for (int layout = 0; layout < TEST_LAYOUTS; layout++) {
            int64_t count = count_of(test_shapes[i]);
            float *where = signed_numbers(count, 7), *x = numbers(count, 8), *z = numbers(count, 9);
            expect_where((test_layout)layout, test_shapes[i], where, x, z);
            free(where);
            free(x);
            free(z);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_of_each_channel),
        cmocka_unit_test(affine_functions_have_the_same_bits_everywhere),
        cmocka_unit_test(relu_has_the_bits_of_separate_steps),
        cmocka_unit_test(what_does_not_count_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
