#include "ops/pixels.h"
#include "base/minmax.h"

#include <math.h>
#include <string.h>

static int64_t pixels_clamp(int64_t value, int64_t count)
{
    return lk__max(0, lk__min(value, count - 1));
}

/* This form of the interpolation returns exactly a if a == b, so uniform areas do not change. */
static inline float pixels_blend(float a, float b, float share)
{
    return a + share * (b - a);
}

void lk__pixels_from_bytes(const uint8_t *restrict from, int64_t count, float *restrict to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)from[i] / 255.0f;
}

/* line[j] = the pixel at column j + offset of a row that lies between the rows a and b; columns outside repeat the
 * edge. -width <= offset < width, so at least one column is inside. */
static void pixels_blend_rows(const float *restrict a, const float *restrict b, float share, int64_t width,
                              int64_t offset, float *restrict line)
{
    int64_t first = lk__max(0, -offset);
    int64_t end = lk__min(width + 1, width - offset);
    for (int64_t j = first; j < end; j++)
        line[j] = pixels_blend(a[j + offset], b[j + offset], share);
    for (int64_t j = 0; j < first; j++)
        line[j] = line[first];
    for (int64_t j = end; j <= width; j++)
        line[j] = line[end - 1];
}

static void pixels_blend_columns(const float *restrict line, float share, int64_t width, float *restrict to)
{
    for (int64_t x = 0; x < width; x++)
        to[x] = pixels_blend(line[x], line[x + 1], share);
}

void lk__pixels_shift(const float *from, lk_plane_size size, double down, double right, float *line, float *to)
{
    int64_t row = (int64_t)floor(down), column = (int64_t)floor(right);
    float row_share = (float)(down - floor(down)), column_share = (float)(right - floor(right));
    for (int64_t y = 0; y < size.height; y++) {
        const float *a = from + pixels_clamp(y + row, size.height) * size.width;
        const float *b = from + pixels_clamp(y + row + 1, size.height) * size.width;
        pixels_blend_rows(a, b, row_share, size.width, column, line);
        pixels_blend_columns(line, column_share, size.width, to + y * size.width);
    }
}

void lk__pixels_flip(const float *restrict from, lk_plane_size size, float *restrict to)
{
    for (int64_t y = 0; y < size.height; y++)
        for (int64_t x = 0; x < size.width; x++)
            to[y * size.width + x] = from[y * size.width + size.width - 1 - x];
}

void lk__pixels_flip_down(const float *restrict from, lk_plane_size size, float *restrict to)
{
    for (int64_t y = 0; y < size.height; y++)
        memcpy(to + y * size.width, from + (size.height - 1 - y) * size.width, (size_t)size.width * sizeof *to);
}

/* 1 - x^2 / (first (first + 1)) (1 - x^2 / …): with first 1 the Taylor series of the cosine, with first 2 that of
 * sin(x) / x. C libraries differ in the last bits of both functions. */
static double pixels_series(double x, int first)
{
    double sum = 1;
    for (int k = first + 28; k >= first; k -= 2)
        sum = 1 - x * x / (double)(k * (k + 1)) * sum;
    return sum;
}

lk_pixel_map lk__pixels_rotation(double degrees)
{
    double angle = degrees * (3.141592653589793 / 180), cosine = pixels_series(angle, 1),
           sine = angle * pixels_series(angle, 2);
    return (lk_pixel_map){.yy = cosine, .yx = sine, .xy = -sine, .xx = cosine};
}

static float pixels_or_zero(const float *from, lk_plane_size size, int64_t y, int64_t x)
{
    return y >= 0 && y < size.height && x >= 0 && x < size.width ? from[y * size.width + x] : 0;
}

void lk__pixels_map(const float *from, lk_plane_size size, const lk_pixel_map *map, float *to)
{
    double middle_y = (double)(size.height - 1) / 2, middle_x = (double)(size.width - 1) / 2;
    for (int64_t i = 0; i < size.height * size.width; i++) {
        int64_t to_row = i / size.width, to_column = i % size.width;
        double y = (double)to_row - middle_y, x = (double)to_column - middle_x;
        double from_y = map->yy * y + map->yx * x + map->down + middle_y;
        double from_x = map->xy * y + map->xx * x + map->right + middle_x;
        int64_t row = (int64_t)floor(from_y), column = (int64_t)floor(from_x);
        float down = (float)(from_y - floor(from_y)), right = (float)(from_x - floor(from_x));
        float above =
            pixels_blend(pixels_or_zero(from, size, row, column), pixels_or_zero(from, size, row, column + 1), right);
        float below = pixels_blend(pixels_or_zero(from, size, row + 1, column),
                                   pixels_or_zero(from, size, row + 1, column + 1), right);
        to[i] = pixels_blend(above, below, down);
    }
}

void lk__pixels_crop(const float *from, lk_plane_size size, int64_t down, int64_t right, float *to)
{
    int64_t first = lk__max(0, -right), inside = size.width - (right < 0 ? -right : right);
    for (int64_t y = 0; y < size.height; y++, to += size.width) {
        memset(to, 0, (size_t)size.width * sizeof *to);
        if (y + down >= 0 && y + down < size.height)
            memcpy(to + first, from + (y + down) * size.width + first + right, (size_t)inside * sizeof *to);
    }
}

void lk__pixels_normalize(float *pixels, int64_t count, float mean, float deviation)
{
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (pixels[i] - mean) / deviation;
}

void lk__pixels_erase(float *pixels, lk_plane_size size, int64_t top, int64_t left, int64_t height, int64_t width)
{
    for (int64_t y = top; y < top + height; y++)
        memset(pixels + y * size.width + left, 0, (size_t)width * sizeof *pixels);
}

void lk__pixels_cut_out(float *pixels, lk_plane_size size, int64_t center_y, int64_t center_x, int64_t side)
{
    int64_t top = lk__max(0, center_y - side / 2), left = lk__max(0, center_x - side / 2);
    int64_t bottom = lk__min(size.height, center_y - side / 2 + side);
    int64_t right = lk__min(size.width, center_x - side / 2 + side);
    lk__pixels_erase(pixels, size, top, left, bottom - top, right - left);
}
