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

void lk__pixels_cut_out(float *pixels, lk_plane_size size, int64_t center_y, int64_t center_x, int64_t side)
{
    int64_t top = center_y - side / 2, left = center_x - side / 2;
    int64_t first = lk__max(0, left), end = lk__min(size.width, left + side);
    for (int64_t y = lk__max(0, top); y < lk__min(size.height, top + side); y++)
        memset(pixels + y * size.width + first, 0, (size_t)(end - first) * sizeof *pixels);
}
