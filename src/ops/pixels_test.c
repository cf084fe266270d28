/* The passes over a plane, compared with scipy and with the same roundings pixel by pixel, and at edges. */
#include "ops/pixels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

enum { MAX_SIDE = 41, MAX_PIXELS = MAX_SIDE * MAX_SIDE };

static uint8_t pixel_of(int64_t sample, int64_t pixel)
{
    return (uint8_t)(sample * 31 + pixel * 7);
}

static int64_t clamped(int64_t value, int64_t count)
{
    return value < 0 ? 0 : value >= count ? count - 1 : value;
}

static void fill(float *plane, lk_plane_size size)
{
    for (int64_t j = 0; j < size.height * size.width; j++)
        plane[j] = (float)pixel_of(3, j) / 255.0f;
}

/* Values of Keras' apply_affine_transform(tx=down, ty=right, order=1, fill_mode='nearest'), which is scipy 1.17's
 * ndimage.affine_transform, for the 3x4 plane that fill() makes. */
static void test_shift_as_scipy(void **state)
{
    (void)state;
    static const struct {
        double down, right;
        float plane[12];
    } cases[] = {
        {0.25,
         -1.375,
         {0.392156869f, 0.392156869f, 0.409313738f, 0.436764717f, 0.501960814f, 0.501960814f, 0.519117653f,
          0.546568632f, 0.58431375f, 0.58431375f, 0.60147059f, 0.628921568f}},
        {-1.5,
         0.75,
         {0.385294139f, 0.412745118f, 0.440196097f, 0.447058827f, 0.385294139f, 0.412745118f, 0.440196097f,
          0.447058827f, 0.440196097f, 0.467647076f, 0.495098054f, 0.501960814f}},
        {2.75,
         3.25,
         {0.666666687f, 0.666666687f, 0.666666687f, 0.666666687f, 0.666666687f, 0.666666687f, 0.666666687f,
          0.666666687f, 0.666666687f, 0.666666687f, 0.666666687f, 0.666666687f}},
        {0.0,
         -3.5,
         {0.36470589f, 0.36470589f, 0.36470589f, 0.36470589f, 0.474509805f, 0.474509805f, 0.474509805f, 0.474509805f,
          0.58431375f, 0.58431375f, 0.58431375f, 0.58431375f}},
    };
    const lk_plane_size size = {3, 4};
    float from[12], line[5], to[12];
    fill(from, size);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lk__pixels_shift(from, size, cases[i].down, cases[i].right, line, to);
        for (int j = 0; j < 12; j++)
            assert_true(fabsf(to[j] - cases[i].plane[j]) < 2e-7f);
    }
}

/* volatile keeps the compiler from vectors and fused operations: each operation is rounded to f32. */
static float between(float a, float b, float share)
{
    volatile float difference = b - a;
    volatile float product = share * difference;
    volatile float sum = a + product;
    return sum;
}

static float shifted_pixel(const float *from, lk_plane_size size, int64_t y, int64_t x, double down, double right)
{
    int64_t top = y + (int64_t)floor(down), left = x + (int64_t)floor(right);
    float row_share = (float)(down - floor(down)), column_share = (float)(right - floor(right));
    const float *a = from + clamped(top, size.height) * size.width;
    const float *b = from + clamped(top + 1, size.height) * size.width;
    int64_t l = clamped(left, size.width), r = clamped(left + 1, size.width);
    return between(between(a[l], b[l], row_share), between(a[r], b[r], row_share), column_share);
}

static void check_bits(lk_plane_size size, double down, double right)
{
    static float from[MAX_PIXELS], line[MAX_SIDE + 2], to[MAX_PIXELS + 1];
    fill(from, size);
    line[size.width + 1] = to[size.height * size.width] = -5;
    lk__pixels_shift(from, size, down, right, line, to);
    assert_true(line[size.width + 1] == -5 && to[size.height * size.width] == -5);
    for (int64_t y = 0; y < size.height; y++)
        for (int64_t x = 0; x < size.width; x++) {
            float expected = shifted_pixel(from, size, y, x, down, right);
            assert_memory_equal(&to[y * size.width + x], &expected, sizeof expected);
        }
}

/* A pixel's bits are the same at every position in a vector and in its tail. */
static void test_shift_bits(void **state)
{
    (void)state;
    static const double shares[] = {-0.9999999, -0.5, -0.2, -0.01, 0, 0.03, 0.1875, 0.5, 0.9999999};
    enum { SHARES = sizeof shares / sizeof shares[0] };
    for (int64_t width = 1; width <= MAX_SIDE; width++)
        for (int64_t height = 1; height <= MAX_SIDE; height += 5)
            for (int i = 0; i < SHARES; i++)
                check_bits((lk_plane_size){height, width}, shares[i] * (double)height,
                           shares[(i * 4 + width) % SHARES] * (double)width);
}

static void test_even_areas_stay(void **state)
{
    (void)state;
    const lk_plane_size size = {9, 13};
    float from[9 * 13], line[14], to[9 * 13];
    for (int j = 0; j < 9 * 13; j++)
        from[j] = 0.1f;
    lk__pixels_shift(from, size, 1.3, -2.7, line, to);
    assert_memory_equal(from, to, sizeof to);
}

static void test_flip(void **state)
{
    (void)state;
    static float from[MAX_PIXELS], to[MAX_PIXELS];
    for (int64_t width = 1; width <= MAX_SIDE; width++) {
        const lk_plane_size size = {3, width};
        fill(from, size);
        lk__pixels_flip(from, size, to);
        for (int64_t y = 0; y < 3; y++)
            for (int64_t x = 0; x < width; x++)
                assert_true(to[y * width + x] == from[y * width + width - 1 - x]);
    }
}

static void test_crop(void **state)
{
    (void)state;
    static float from[MAX_PIXELS], to[MAX_PIXELS];
    const lk_plane_size size = {5, 7};
    fill(from, size);
    for (int64_t down = -4; down <= 4; down++)
        for (int64_t right = -6; right <= 6; right++) {
            lk__pixels_crop(from, size, down, right, to);
            for (int64_t y = 0; y < 5; y++)
                for (int64_t x = 0; x < 7; x++) {
                    bool inside = y + down >= 0 && y + down < 5 && x + right >= 0 && x + right < 7;
                    assert_true(to[y * 7 + x] == (inside ? from[(y + down) * 7 + x + right] : 0));
                }
        }
}

static void test_cut_out(void **state)
{
    (void)state;
    static float pixels[MAX_PIXELS];
    const lk_plane_size size = {5, 7};
    for (int64_t side = 1; side <= 6; side++)
        for (int64_t center = 0; center < 5 * 7; center++) {
            int64_t top = center / 7 - side / 2, left = center % 7 - side / 2, zeroes = 0;
            for (int j = 0; j < 5 * 7; j++)
                pixels[j] = 1;
            lk__pixels_cut_out(pixels, size, center / 7, center % 7, side);
            for (int64_t y = 0; y < 5; y++)
                for (int64_t x = 0; x < 7; x++) {
                    bool inside = y >= top && y < top + side && x >= left && x < left + side;
                    assert_true(pixels[y * 7 + x] == (inside ? 0 : 1));
                    zeroes += inside;
                }
            assert_true(zeroes > 0);
        }
}

static void test_bytes_and_normalize(void **state)
{
    (void)state;
    uint8_t bytes_in[256];
    float values[256];
    for (int i = 0; i < 256; i++)
        bytes_in[i] = (uint8_t)i;
    lk__pixels_from_bytes(bytes_in, 256, values);
    for (int i = 0; i < 256; i++)
        assert_true(values[i] == (float)(i / 255.0));
    lk__pixels_normalize(values, 256, 0.286f, 0.353f);
    for (int i = 0; i < 256; i++) {
        volatile float centered = (float)(i / 255.0) - 0.286f;
        volatile float expected = centered / 0.353f;
        assert_true(values[i] == expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift_as_scipy),
        cmocka_unit_test(test_shift_bits),
        cmocka_unit_test(test_even_areas_stay),
        cmocka_unit_test(test_flip),
        cmocka_unit_test(test_crop),
        cmocka_unit_test(test_cut_out),
        cmocka_unit_test(test_bytes_and_normalize),
    };
    return cmocka_run_group_tests_name("pixels", tests, NULL, NULL);
}
