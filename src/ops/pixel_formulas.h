/* The arithmetic of augmentation, pixel by pixel, which the host's passes over planes and the kernels of GPUs share.
 * Values are one chain of roundings in f32, places are computed in f64. Nothing here may be contracted to fused
 * multiply-adds. */
#pragma once

#include "base/everywhere.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lk_plane_size {
    int64_t height, width;
} lk_plane_size;

/* --- places ------------------------------------------------------------------------------------------------------- */

/* A place between pixels: (row + down, column + right), with 0 <= down, right <= 1. */
typedef struct lk_pixel_place {
    int64_t row, column;
    float down, right;
} lk_pixel_place;

/* An affine map from a pixel (y, x) to the place that it is taken from, both counted from the image's center:
 * (yy y + yx x + down, xy y + xx x + right). */
typedef struct lk_pixel_map {
    double yy, yx, xy, xx, down, right;
} lk_pixel_map;

LK_EVERYWHERE static inline lk_pixel_place lk__pixel_place(double y, double x)
{
    lk_pixel_place place = {(int64_t)floor(y), (int64_t)floor(x), (float)(y - floor(y)), (float)(x - floor(x))};
    return place;
}

LK_EVERYWHERE static inline lk_pixel_place lk__pixel_map_place(const lk_pixel_map *map, lk_plane_size size, int64_t row,
                                                               int64_t column)
{
    double middle_y = (double)(size.height - 1) / 2, middle_x = (double)(size.width - 1) / 2;
    double y = (double)row - middle_y, x = (double)column - middle_x;
    return lk__pixel_place(map->yy * y + map->yx * x + map->down + middle_y,
                           map->xy * y + map->xx * x + map->right + middle_x);
}

/* The last number of the series below; the one before it for the other series. */
enum { LK_PIXEL_SERIES_END = 28 };

/* 1 - x^2 / (first (first + 1)) (1 - x^2 / …): with first 1 the Taylor series of the cosine, with first 2 that of
 * sin(x) / x. C libraries differ in the last bits of both functions. */
LK_EVERYWHERE static inline double lk__pixel_series(double x, int first)
{
    double sum = 1;
    for (int k = first + LK_PIXEL_SERIES_END; k >= first; k -= 2)
        sum = 1 - x * x / (double)(k * (k + 1)) * sum;
    return sum;
}

#define LK_RADIANS_IN_DEGREE (3.141592653589793 / 180)

/* The map that turns the picture counterclockwise by these degrees, -180 … 180. */
LK_EVERYWHERE static inline lk_pixel_map lk__pixel_rotation(double degrees)
{
    double angle = degrees * LK_RADIANS_IN_DEGREE, cosine = lk__pixel_series(angle, 1),
           sine = angle * lk__pixel_series(angle, 2);
    lk_pixel_map map = {cosine, sine, -sine, cosine, 0, 0};
    return map;
}

LK_EVERYWHERE static inline bool lk__pixel_is_inside(lk_plane_size size, int64_t y, int64_t x)
{
    return y >= 0 && y < size.height && x >= 0 && x < size.width;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

LK_EVERYWHERE static inline float lk__pixel_from_byte(uint8_t byte)
{
    return (float)byte / 255.0f;
}

/* This form of the interpolation returns exactly a if a == b, so uniform areas do not change. */
LK_EVERYWHERE static inline float lk__pixel_blend(float a, float b, float share)
{
    return a + share * (b - a);
}

/* The value at `place` between the pixels [0][0] and [0][1] of one row and [1][0] and [1][1] of the next. */
LK_EVERYWHERE static inline float lk__pixel_between(const float around[2][2], const lk_pixel_place *place)
{
    return lk__pixel_blend(lk__pixel_blend(around[0][0], around[0][1], place->right),
                           lk__pixel_blend(around[1][0], around[1][1], place->right), place->down);
}

LK_EVERYWHERE static inline float lk__pixel_or_zero(const float *plane, lk_plane_size size, int64_t y, int64_t x)
{
    return lk__pixel_is_inside(size, y, x) ? plane[y * size.width + x] : 0;
}

/* The value that the map puts at (row, column), 0 outside the plane. */
LK_EVERYWHERE static inline float lk__pixel_mapped(const float *plane, lk_plane_size size, const lk_pixel_map *map,
                                                   int64_t row, int64_t column)
{
    lk_pixel_place at = lk__pixel_map_place(map, size, row, column);
    const float around[2][2] = {
        {lk__pixel_or_zero(plane, size, at.row, at.column), lk__pixel_or_zero(plane, size, at.row, at.column + 1)},
        {lk__pixel_or_zero(plane, size, at.row + 1, at.column),
         lk__pixel_or_zero(plane, size, at.row + 1, at.column + 1)}};
    return lk__pixel_between(around, &at);
}

LK_EVERYWHERE static inline float lk__pixel_normalized(float value, float mean, float divisor)
{
    return (value - mean) / divisor;
}

/* Mixup: `share` of one value and the rest of the other. */
LK_EVERYWHERE static inline float lk__pixel_mixed(float value, float other, float share)
{
    return share * value + (1 - share) * other;
}

/* --- colors ------------------------------------------------------------------------------------------------------- */

LK_EVERYWHERE static inline float lk__color_clip(float value)
{
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* `factor` 0 gives `other`, 1 gives `value`, clipped. */
LK_EVERYWHERE static inline float lk__color_mix(float other, float value, float factor)
{
    return lk__color_clip(other + factor * (value - other));
}

enum { LK_COLOR_LEVELS = 256 };

/* NaN has level 0, because its conversion to an integer is undefined. */
LK_EVERYWHERE static inline int lk__color_level(float value)
{
    return value > 0 ? (int)(lk__color_clip(value) * 255.0f + 0.5f) : 0;
}

/* The gray value of pixel i of an image of planes of n pixels: ITU-R 601 luma for three channels, otherwise their mean.
 */
LK_EVERYWHERE static inline float lk__color_gray(const float *values, int64_t channels, int64_t n, int64_t i)
{
    if (channels == 3)
        return 0.299f * values[i] + 0.587f * values[n + i] + 0.114f * values[2 * n + i];
    float sum = 0;
    for (int64_t c = 0; c < channels; c++)
        sum += values[c * n + i];
    return sum / (float)channels;
}

/* The mean gray of n pixels is computed from whole numbers, the grays in units of 2^-32, so that their order does not
 * matter. NaN counts as 0. n below 2^31. */
LK_EVERYWHERE static inline int64_t lk__color_units(float gray)
{
    return gray > 0 ? (int64_t)((gray < 1 ? gray : 1) * 0x1p32f) : 0;
}

LK_EVERYWHERE static inline float lk__color_mean(int64_t units, int64_t n)
{
    return (float)((double)units * 0x1p-32 / (double)n);
}

/* The pixel at `at`, which is not on the plane's border, mixed with its blurred neighborhood. */
LK_EVERYWHERE static inline float lk__color_sharpened(const float *at, int64_t width, float factor)
{
    float sum = 4 * at[0];
    for (int row = -1; row <= 1; row++)
        sum += at[row * width - 1] + at[row * width] + at[row * width + 1];
    return lk__color_mix(sum / 13.0f, at[0], factor);
}

LK_EVERYWHERE static inline float lk__color_solarized(float value, float threshold)
{
    return value >= threshold ? 1 - value : value;
}

LK_EVERYWHERE static inline float lk__color_posterized(float value, int bits)
{
    int mask = (LK_COLOR_LEVELS - 1) ^ ((1 << (8 - bits)) - 1);
    return (float)(lk__color_level(value) & mask) / 255.0f;
}

LK_EVERYWHERE static inline float lk__color_stretched(float value, float least, float most)
{
    return (value - least) / (most - least);
}

/* Equalizing: the value of a level that `below` pixels are below, with `step` pixels for each level. */
LK_EVERYWHERE static inline float lk__color_equalized(int64_t below, int64_t step)
{
    int64_t level = (below + step / 2) / step;
    return (float)(level < LK_COLOR_LEVELS ? level : LK_COLOR_LEVELS - 1) / 255.0f;
}
