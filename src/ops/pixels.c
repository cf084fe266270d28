#include "ops/pixels.h"
#include "base/minmax.h"

#include <string.h>

static int64_t pixels_clamp(int64_t value, int64_t count)
{
    return lk__max(0, lk__min(value, count - 1));
}

void lk__pixels_from_bytes(const uint8_t *restrict from, int64_t count, float *restrict to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = lk__pixel_from_byte(from[i]);
}

/* line[j] = the pixel at column j + offset of a row that lies between the rows a and b; columns outside repeat the
 * edge. -width <= offset < width, so at least one column is inside. */
static void pixels_blend_rows(const float *restrict a, const float *restrict b, float share, int64_t width,
                              int64_t offset, float *restrict line)
{
    int64_t first = lk__max(0, -offset);
    int64_t end = lk__min(width + 1, width - offset);
    for (int64_t j = first; j < end; j++)
        line[j] = lk__pixel_blend(a[j + offset], b[j + offset], share);
    for (int64_t j = 0; j < first; j++)
        line[j] = line[first];
    for (int64_t j = end; j <= width; j++)
        line[j] = line[end - 1];
}

static void pixels_blend_columns(const float *restrict line, float share, int64_t width, float *restrict to)
{
    for (int64_t x = 0; x < width; x++)
        to[x] = lk__pixel_blend(line[x], line[x + 1], share);
}

void lk__pixels_shift(const float *from, lk_plane_size size, double down, double right, float *line, float *to)
{
    lk_pixel_place by = lk__pixel_place(down, right);
    for (int64_t y = 0; y < size.height; y++) {
        const float *a = from + pixels_clamp(y + by.row, size.height) * size.width;
        const float *b = from + pixels_clamp(y + by.row + 1, size.height) * size.width;
        pixels_blend_rows(a, b, by.down, size.width, by.column, line);
        pixels_blend_columns(line, by.right, size.width, to + y * size.width);
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

void lk__pixels_map(const float *from, lk_plane_size size, const lk_pixel_map *map, float *to)
{
    for (int64_t y = 0; y < size.height; y++)
        for (int64_t x = 0; x < size.width; x++)
            to[y * size.width + x] = lk__pixel_mapped(from, size, map, y, x);
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
        pixels[i] = lk__pixel_normalized(pixels[i], mean, deviation);
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
