/* Average pooling of lanes.h and its gradient. All channels of a pixel are one contiguous run, so plain loops over it
 * become vectors. */
#include "cpu/lanes/lanes_tiles.h"

#include <string.h>

typedef lk_pixel_range range;

/* y = the mean of x over a window, for all channels of a block of images. */
static void lanes_pool_average_window(const lk_geometry *pool, const float *x, range rows, range columns,
                                      float *restrict y)
{
    int64_t n = pool->channels * LK_WIDTH;
    float count = (float)lk__geometry_divisor(pool, rows, columns);
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        for (int64_t column = columns.begin; column < columns.end; column++) {
            const float *from = x + (row * pool->in[1] + column) * n;
            for (int64_t i = 0; i < n; i++)
                y[i] += from[i];
        }
    }
    for (int64_t i = 0; i < n; i++)
        y[i] /= count;
}

/* Adds dy / count to every pixel of the window. */
static void lanes_pool_spread_window(const lk_geometry *pool, const float *restrict dy, range rows, range columns,
                                     float *dx)
{
    int64_t n = pool->channels * LK_WIDTH;
    float count = (float)lk__geometry_divisor(pool, rows, columns);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        for (int64_t column = columns.begin; column < columns.end; column++) {
            float *restrict to = dx + (row * pool->in[1] + column) * n;
            for (int64_t i = 0; i < n; i++)
                to[i] += dy[i] / count;
        }
    }
}

void lk__lanes_avg_pool(const lk_geometry *pool, const float *x, float *y)
{
    int64_t n = pool->channels * LK_WIDTH, blocks = lk__lanes_blocks(pool->images);
    for (int64_t b = 0; b < blocks; b++, x += pool->in[0] * pool->in[1] * n)
        for (int64_t row = 0; row < pool->out[0]; row++)
            for (int64_t column = 0; column < pool->out[1]; column++, y += n)
                lanes_pool_average_window(pool, x, lk__geometry_window(pool, 0, row),
                                          lk__geometry_window(pool, 1, column), y);
}

void lk__lanes_avg_pool_grad(const lk_geometry *pool, const float *dy, float *dx)
{
    int64_t n = pool->channels * LK_WIDTH, blocks = lk__lanes_blocks(pool->images);
    size_t block = (size_t)(pool->in[0] * pool->in[1] * n);
    for (int64_t b = 0; b < blocks; b++, dx += block) {
        memset(dx, 0, block * sizeof *dx);
        for (int64_t row = 0; row < pool->out[0]; row++)
            for (int64_t column = 0; column < pool->out[1]; column++, dy += n)
                lanes_pool_spread_window(pool, dy, lk__geometry_window(pool, 0, row),
                                         lk__geometry_window(pool, 1, column), dx);
    }
}
