/* The steps of augmentation on one plane of pixels, once its random choices are made. A pixel's bits depend only on the
 * pixels it is made from: each is one chain of roundings in f32, wherever it lies in a row. Planes must not overlap. */
#pragma once

#include "ops/pixel_formulas.h"

/* An image [C,H,W] before augmentation: bytes, which stand for bytes / 255, or floats. One of the two is NULL. */
typedef struct lk_pixels {
    const uint8_t *bytes;
    const float *floats;
} lk_pixels;

/* to = from / 255. */
void lk__pixels_from_bytes(const uint8_t *from, int64_t count, float *to);

/* to[y][x] = from[height - 1 - y][x]. */
void lk__pixels_flip_down(const float *from, lk_plane_size size, float *to);

/* Takes each pixel from where the map says, bilinear between pixels; 0 outside. */
void lk__pixels_map(const float *from, lk_plane_size size, const lk_pixel_map *map, float *to);

/* to[y][x] = from[y + down][x + right], bilinear; coordinates outside count as the nearest pixel. `right` > 0 moves the
 * picture to the left. |down| < height, |right| < width. line: scratch, [width + 1]. */
void lk__pixels_shift(const float *from, lk_plane_size size, double down, double right, float *line, float *to);

/* to[y][x] = from[y][width - 1 - x]. */
void lk__pixels_flip(const float *from, lk_plane_size size, float *to);

/* to[y][x] = from[y + down][x + right], 0 outside. |down| < height, |right| < width. */
void lk__pixels_crop(const float *from, lk_plane_size size, int64_t down, int64_t right, float *to);

/* (pixel - mean) / deviation, in place. */
void lk__pixels_normalize(float *pixels, int64_t count, float mean, float deviation);

/* Sets to 0 the rectangle of height x width at (top, left), which is inside. */
void lk__pixels_erase(float *pixels, lk_plane_size size, int64_t top, int64_t left, int64_t height, int64_t width);

/* Sets to 0 the square of `side` pixels that begins at (center_y - side / 2, center_x - side / 2), as far as it is
 * inside. */
void lk__pixels_cut_out(float *pixels, lk_plane_size size, int64_t center_y, int64_t center_x, int64_t side);
