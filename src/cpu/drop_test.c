/* Dropout: the elements that lk_dropout_at promises, in every layout. */
#include "cpu/drop.h"

#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

static const lk_random_key key = {.seed = 5, .purpose = 77, .epoch = 3};

static uint32_t sample_of(int64_t image)
{
    return (uint32_t)(image * 2654435761u);
}

static float *expected(test_shape s, const float *x, double rate)
{
    int64_t count = s.channels * s.pixels;
    float *y = malloc((size_t)(s.images * count) * sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < s.images * count; i++) {
        lk_random_key of_sample = key;
        uint32_t words[4];
        of_sample.sample = sample_of(i / count);
        lk_random_block(&of_sample, (uint64_t)(i % count / 4), words);
        bool kept = (double)words[i % count % 4] >= rate * 0x1p32;
        y[i] = kept ? (float)((double)x[i] * (1 / (1 - rate))) : 0;
    }
    return y;
}

static void drop_runs(const lk_drop *drop, test_layout layout, test_shape s, const float *x, float *y)
{
    int64_t stride = layout == PLAIN ? 1 : layout == LAST ? s.channels : test_block(layout);
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t c = 0; c < s.channels; c++) {
            int64_t at = test_offset(layout, s, n, c, 0);
            lk__drop_run(drop, sample_of(n), c * s.pixels, s.pixels, stride, x, y, at);
        }
}

static void drop_lanes_of_channels(const lk_drop *drop, test_layout layout, test_shape s, const float *x, float *y)
{
    lk_drop_lane lanes[LK_DROP_LANES];
    int64_t block = test_block(layout);
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t c = 0; c < rounded_up(s.channels, block); c += LK_DROP_LANES) {
            int64_t at = test_offset(layout, s, n, c, 0);
            for (int l = 0; l < LK_DROP_LANES; l++)
                lanes[l] = (lk_drop_lane){c + l < s.channels, sample_of(n), (c + l) * s.pixels};
            lk__drop_lanes(drop, lanes, s.pixels, block, x, y, at);
        }
}

static void drop_lanes_of_images(const lk_drop *drop, test_layout layout, test_shape s, const float *x, float *y)
{
    lk_drop_lane lanes[LK_DROP_LANES];
    for (int64_t n = 0; n < rounded_up(s.images, test_lanes(layout)); n += LK_DROP_LANES)
        for (int64_t c = 0; c < s.channels; c++) {
            int64_t at = test_offset(layout, s, n, c, 0);
            for (int l = 0; l < LK_DROP_LANES; l++)
                lanes[l] = (lk_drop_lane){n + l < s.images, sample_of(n + l), c * s.pixels};
            lk__drop_lanes(drop, lanes, s.pixels, s.channels * test_lanes(layout), x, y, at);
        }
}

static void expect_dropped(test_layout layout, test_shape s, double rate)
{
    int64_t count = s.images * s.channels * s.pixels;
    lk_drop drop = lk__drop_start(&key, rate);
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = 1 + (float)i / 3;
    bool runs = layout == PLAIN || layout == LAST || layout == BLOCKS_OF_4;
    float *in = test_arranged(layout, s, x, 0), *y = test_arranged(layout, s, x, runs ? 0 : NAN);
    float *want = expected(s, x, rate);
    if (runs)
        drop_runs(&drop, layout, s, in, y);
    else if (test_lanes(layout))
        drop_lanes_of_images(&drop, layout, s, in, y);
    else
        drop_lanes_of_channels(&drop, layout, s, in, y);
    expect_arranged(layout, s, y, want);
    free(x);
    free(in);
    free(y);
    free(want);
}

static void every_layout_drops_the_same_elements(void **state)
{
    (void)state;
    const double rates[] = {0x1p-32, 0.01, 0.5, 1 - 0x1p-33};
    for (int i = 0; i < TEST_SHAPES; i++)
        for (int layout = 0; layout < TEST_LAYOUTS; layout++)
            for (int r = 0; r < 4; r++)
                expect_dropped((test_layout)layout, test_shapes[i], rates[r]);
}

/* More elements than one piece, starting in the middle of a block of random words. */
static void a_long_run_goes_on_where_it_stopped(void **state)
{
    (void)state;
    enum { COUNT = 5000, FIRST = 3 };
    test_shape s = {1, 1, FIRST + COUNT};
    lk_drop drop = lk__drop_start(&key, 0.3);
    float x[FIRST + COUNT], y[COUNT];
    for (int i = 0; i < FIRST + COUNT; i++)
        x[i] = (float)(i + 1);
    float *want = expected(s, x, 0.3);
    lk__drop_run(&drop, sample_of(0), FIRST, COUNT, 1, x + FIRST, y, 0);
    assert_memory_equal(y, want + FIRST, sizeof y);
    free(want);
}

static void nan_is_dropped_too(void **state)
{
    (void)state;
    float x[64], y[64];
    int nans = 0;
    lk_drop drop = lk__drop_start(&key, 0.5);
    for (int i = 0; i < 64; i++)
        x[i] = NAN;
    lk__drop_run(&drop, 0, 0, 64, 1, x, y, 0);
    for (int i = 0; i < 64; i++) {
        assert_true(isnan(y[i]) || y[i] == 0);
        nans += isnan(y[i]) != 0;
    }
    assert_true(nans > 0 && nans < 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_drops_the_same_elements),
        cmocka_unit_test(a_long_run_goes_on_where_it_stopped),
        cmocka_unit_test(nan_is_dropped_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
