/* For tests: the offset of an element in each layout of activations, independent of the tested code. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct test_shape {
    int64_t images, channels, pixels;
} test_shape;

typedef enum test_layout {
    PLAIN,
    LAST,
    BLOCKS_OF_4,
    BLOCKS_OF_8,
    BLOCKS_OF_16,
    IMAGES,
    WIDE_IMAGES,
    TEST_LAYOUTS
} test_layout;

static const char *const test_layout_names[] = {"plain",        "channels last",   "blocks of 4",       "blocks of 8",
                                                "blocks of 16", "images in lanes", "images in 16 lanes"};

static inline int64_t rounded_up(int64_t n, int64_t block)
{
    return (n + block - 1) / block * block;
}

static inline int64_t test_block(test_layout layout)
{
    return layout == BLOCKS_OF_4 ? 4 : layout == BLOCKS_OF_8 ? 8 : 16;
}

/* Images of a vector if these are in the lanes, otherwise 0. */
static inline int64_t test_lanes(test_layout layout)
{
    return layout == IMAGES ? 8 : layout == WIDE_IMAGES ? 16 : 0;
}

/* Number of elements, padding included. */
static inline int64_t test_size(test_layout layout, test_shape s)
{
    if (test_lanes(layout))
        return rounded_up(s.images, test_lanes(layout)) * s.channels * s.pixels;
    int64_t channels = layout <= LAST ? s.channels : rounded_up(s.channels, test_block(layout));
    return s.images * channels * s.pixels;
}

static inline int64_t test_offset(test_layout layout, test_shape s, int64_t n, int64_t c, int64_t p)
{
    int64_t block = test_block(layout), lanes = test_lanes(layout);
    switch (layout) {
    case PLAIN:
        return (n * s.channels + c) * s.pixels + p;
    case LAST:
        return (n * s.pixels + p) * s.channels + c;
    case IMAGES:
    case WIDE_IMAGES:
        return ((n / lanes * s.pixels + p) * s.channels + c) * lanes + n % lanes;
    default:
        return (n * rounded_up(s.channels, block) + c / block * block) * s.pixels + p * block + c % block;
    }
}

/* Arranges row-major elements in another layout; padding is filled with `padding`. The caller frees. */
static inline float *test_arranged(test_layout layout, test_shape s, const float *plain, float padding)
{
    int64_t size = test_size(layout, s);
    float *arranged = malloc((size_t)size * sizeof *arranged);
    assert_non_null(arranged);
    for (int64_t i = 0; i < size; i++)
        arranged[i] = padding;
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t c = 0; c < s.channels; c++)
            for (int64_t p = 0; p < s.pixels; p++)
                arranged[test_offset(layout, s, n, c, p)] = *plain++;
    return arranged;
}

/* Checks that y, in a layout, holds the row-major elements, bit for bit, and 0 in its padding. */
static inline void expect_arranged(test_layout layout, test_shape s, const float *y, const float *plain)
{
    float *want = test_arranged(layout, s, plain, 0);
    for (int64_t i = 0; i < test_size(layout, s); i++)
        if (!(y[i] == want[i]))
            fail_msg("%s [%lld,%lld,%lld]: element %lld in memory is %g, not %g", test_layout_names[layout],
                     (long long)s.images, (long long)s.channels, (long long)s.pixels, (long long)i, (double)y[i],
                     (double)want[i]);
    free(want);
}

/* Blocks that are full or not, pixels that fill vectors or not. */
static const test_shape test_shapes[] = {{2, 16, 12}, {3, 5, 49}, {9, 3, 7}, {8, 20, 1}, {1, 1, 131}, {11, 33, 4}};
enum { TEST_SHAPES = sizeof test_shapes / sizeof *test_shapes };
