/* The changes of colors: neutral factors, known values, and RandAugment's operations on images of any channels. */
#include "ops/rand_augment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { HEIGHT = 7, WIDTH = 9, PIXELS = HEIGHT * WIDTH, VALUES = 3 * PIXELS };

static float values[VALUES], before[VALUES], scratch[PIXELS];

static lk_color_image image_of(int64_t channels)
{
    for (int i = 0; i < VALUES; i++)
        values[i] = before[i] = (float)((i * 37 + i / PIXELS * 11) % 256) / 255.0f;
    return (lk_color_image){.values = values, .channels = channels, .size = {HEIGHT, WIDTH}, .scratch = scratch};
}

static void near_before(float tolerance)
{
    for (int i = 0; i < VALUES; i++)
        assert_float_equal(values[i], before[i], tolerance);
}

static void neutral_factors_change_nothing(void **state)
{
    (void)state;
    for (int64_t channels = 1; channels <= 3; channels++) {
        lk_color_image image = image_of(channels);
        lk__color_brightness(&image, 1);
        lk__color_contrast(&image, 1);
        lk__color_saturation(&image, 1);
        lk__color_sharpness(&image, 1);
        lk__color_posterize(&image, 8);
        near_before(1e-6f);
        lk__color_solarize(&image, 1.5f);
        near_before(1e-6f);
    }
}

static void known_values(void **state)
{
    (void)state;
    lk_color_image image = image_of(3);
    lk__color_brightness(&image, 2);
    for (int i = 0; i < VALUES; i++)
        assert_float_equal(values[i], fmin(1, 2 * (double)before[i]), 1e-6);
    image = image_of(3);
    lk__color_contrast(&image, 0); /* one gray everywhere: the mean luma */
    double luma = 0;
    for (int i = 0; i < PIXELS; i++)
        luma += 0.299 * before[i] + 0.587 * before[PIXELS + i] + 0.114 * before[2 * PIXELS + i];
    for (int i = 0; i < VALUES; i++)
        assert_float_equal(values[i], luma / PIXELS, 1e-5);
    image = image_of(3);
    lk__color_saturation(&image, 0);
    for (int i = 0; i < PIXELS; i++)
        assert_true(values[i] == values[PIXELS + i] && values[i] == values[2 * PIXELS + i]);
    image = image_of(1);
    lk__color_solarize(&image, 0.5f);
    for (int i = 0; i < PIXELS; i++)
        assert_float_equal(values[i], before[i] >= 0.5f ? 1 - before[i] : before[i], 1e-6);
    image = image_of(1);
    lk__color_posterize(&image, 1);
    for (int i = 0; i < PIXELS; i++)
        assert_true(values[i] == (before[i] * 255 >= 127.9 ? 128.0f / 255 : 0));
}

/* The mean gray is exact, so that threads may add up its pixels in any order. */
static void contrast_does_not_depend_on_the_order_of_pixels(void **state)
{
    (void)state;
    for (int64_t channels = 1; channels <= 3; channels++) {
        float changed[VALUES];
        lk_color_image image = image_of(channels);
        lk__color_contrast(&image, 0.7f);
        memcpy(changed, values, sizeof changed);
        for (int i = 0; i < VALUES; i++)
            values[i] = before[i / PIXELS * PIXELS + (PIXELS - 1 - i % PIXELS)];
        lk__color_contrast(&image, 0.7f);
        for (int i = 0; i < (int)channels * PIXELS; i++)
            assert_true(values[i] == changed[i / PIXELS * PIXELS + (PIXELS - 1 - i % PIXELS)]);
    }
}

static void sharpness_blurs_the_inside(void **state)
{
    (void)state;
    lk_color_image image = image_of(1);
    lk__color_sharpness(&image, 0);
    double sum = 4 * (double)before[WIDTH + 1];
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < 3; x++)
            sum += (double)before[y * WIDTH + x];
    assert_float_equal(values[WIDTH + 1], sum / 13, 1e-5);
    assert_true(values[0] == before[0] && values[PIXELS - 1] == before[PIXELS - 1]);
}

static void histograms_are_stretched(void **state)
{
    (void)state;
    lk_color_image image = image_of(1);
    for (int i = 0; i < PIXELS; i++)
        values[i] = 0.25f + 0.5f * (float)i / (PIXELS - 1);
    lk__color_autocontrast(&image);
    assert_true(values[0] == 0 && values[PIXELS - 1] == 1);
    for (int i = 0; i < PIXELS; i++)
        values[i] = 0.5f;
    lk__color_autocontrast(&image);
    lk__color_equalize(&image);
    for (int i = 0; i < PIXELS; i++)
        assert_float_equal(values[i], 0.5, 0.003);
}

/* Two levels in a large plane, a quarter dark: the dark one goes to 0, and the other to the level of a quarter. */
static void equalizing_two_levels(void **state)
{
    (void)state;
    enum { SIDE = 64 };
    static float plane[SIDE * SIDE], room[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        plane[i] = i % 4 == 0 ? 0.2f : 0.3f;
    lk_color_image image = {.values = plane, .channels = 1, .size = {SIDE, SIDE}, .scratch = room};
    lk__color_equalize(&image);
    assert_true(plane[0] == 0 && plane[1] == 1);
}

/* Floats of a program may be NaN, which has no level of its own. */
static void nan_has_the_lowest_level(void **state)
{
    (void)state;
    assert_int_equal(lk__color_level(NAN), 0);
    assert_int_equal(lk__color_level(-1), 0);
    assert_int_equal(lk__color_level(2), LK_COLOR_LEVELS - 1);
    enum { SIDE = 64 };
    static float plane[SIDE * SIDE], room[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        plane[i] = i % 3 == 0 ? NAN : (float)(i % 7) / 7;
    lk_color_image image = {.values = plane, .channels = 1, .size = {SIDE, SIDE}, .scratch = room};
    lk__color_equalize(&image);
    for (int i = 0; i < SIDE * SIDE; i++)
        assert_true(plane[i] >= 0 && plane[i] <= 1);
}

static void operations_keep_the_range(void **state)
{
    (void)state;
    for (int64_t channels = 1; channels <= 3; channels += 2)
        for (int o = 0; o < LK_RAND_OPERATIONS; o++)
            for (int negative = 0; negative < 2; negative++) {
                lk_color_image image = image_of(channels);
                assert_true(strlen(lk__rand_name((lk_rand_operation)o)) > 3);
                lk__rand_apply((lk_rand_operation)o, 1, negative, &image);
                for (int i = 0; i < VALUES; i++)
                    assert_true(values[i] >= 0 && values[i] <= 1);
                for (int64_t i = channels * PIXELS; i < VALUES; i++)
                    assert_true(values[i] == before[i]);
                bool stays = o == LK_RAND_IDENTITY || (o == LK_RAND_COLOR && channels == 1);
                bool is_same = memcmp(values, before, sizeof values) == 0;
                if (o != LK_RAND_AUTOCONTRAST && o != LK_RAND_EQUALIZE)
                    assert_int_equal(is_same, stays);
            }
}

static void a_quarter_turn_moves_pixels(void **state)
{
    (void)state;
    enum { SIDE = 5 };
    float from[SIDE * SIDE], to[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        from[i] = (float)i;
    lk_pixel_map map = lk__pixel_rotation(90);
    lk__pixels_map(from, (lk_plane_size){SIDE, SIDE}, &map, to);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            assert_float_equal(to[y * SIDE + x], from[x * SIDE + SIDE - 1 - y], 1e-5);
    for (double degrees = -180; degrees <= 180; degrees += 7.5) {
        map = lk__pixel_rotation(degrees);
        double angle = degrees * acos(-1) / 180;
        assert_float_equal(map.yy, cos(angle), 1e-12);
        assert_float_equal(map.yx, sin(angle), 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neutral_factors_change_nothing),
        cmocka_unit_test(known_values),
        cmocka_unit_test(sharpness_blurs_the_inside),
        cmocka_unit_test(histograms_are_stretched),
        cmocka_unit_test(equalizing_two_levels),
        cmocka_unit_test(nan_has_the_lowest_level),
        cmocka_unit_test(operations_keep_the_range),
        cmocka_unit_test(a_quarter_turn_moves_pixels),
        cmocka_unit_test(contrast_does_not_depend_on_the_order_of_pixels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
