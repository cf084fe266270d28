#include "cpu/max_pool.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef lk_pixel_range range;

/* Replaces the maximum by x if x is greater. It has no branch, so that loops over it become vectors. */
static inline void max_pool_take_maximum(float x, int32_t index, float *y, int32_t *where)
{
    bool greater = !(x <= *y) & !isnan(*y); /* also if only x is NaN */
    *y = greater ? x : *y;
    *where = greater ? index : *where;
}

/* --- vectors ------------------------------------------------------------------------------------------------------ */

static void max_vector(const lk_geometry *pool, const float *x, range rows, range columns, float *restrict y,
                       int32_t *restrict where)
{
    int64_t n = pool->channels, first = rows.begin * pool->in[1] + columns.begin;
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[first * n + i];
        where[i] = (int32_t)first;
    }
    for (int64_t row = rows.begin; row < rows.end; row++) {
        for (int64_t column = columns.begin; column < columns.end; column++) {
            int64_t at = row * pool->in[1] + column;
            for (int64_t i = 0; i < n; i++)
                max_pool_take_maximum(x[at * n + i], (int32_t)at, &y[i], &where[i]);
        }
    }
}

static void max_vectors(const lk_geometry *pool, const float *x, float *y, int32_t *where)
{
    for (int64_t row = 0; row < pool->out[0]; row++) {
        range rows = lk__geometry_window(pool, 0, row);
        for (int64_t column = 0; column < pool->out[1]; column++, y += pool->channels, where += pool->channels)
            max_vector(pool, x, rows, lk__geometry_window(pool, 1, column), y, where);
    }
}

/* --- row-major: vectors of neighboring columns -------------------------------------------------------------------- */

/* Returns the output columns whose window has its column `tap` inside the input. */
static range max_pool_columns_with(const lk_geometry *pool, int64_t tap)
{
    int64_t before = pool->padding[1] - tap, stride = pool->stride[1];
    int64_t begin = before > 0 ? (before + stride - 1) / stride : 0;
    int64_t last = pool->in[1] - 1 + before;
    int64_t end = last < 0 ? 0 : last / stride + 1;
    return (range){begin, end < pool->out[1] ? end : pool->out[1]};
}

static inline __attribute__((always_inline)) void max_tap(const float *x, int32_t first, int64_t stride, int64_t count,
                                                          float *restrict y, int32_t *restrict where)
{
    for (int32_t i = 0; i < (int32_t)count; i++)
        max_pool_take_maximum(x[i * stride], first + i * (int32_t)stride, &y[i], &where[i]);
}

static void max_row(const lk_geometry *pool, const float *x, range rows, float *y, int32_t *where)
{
    int64_t stride = pool->stride[1];
    for (int64_t i = 0; i < pool->out[1]; i++) {
        where[i] = (int32_t)(rows.begin * pool->in[1] + lk__geometry_window(pool, 1, i).begin);
        y[i] = x[where[i]];
    }
    for (int64_t row = rows.begin; row < rows.end; row++) {
        for (int64_t tap = 0; tap < pool->kernel[1]; tap++) {
            range o = max_pool_columns_with(pool, tap);
            int64_t first = row * pool->in[1] + o.begin * stride - pool->padding[1] + tap, count = o.end - o.begin;
            if (count > 0 && stride == 2) /* clang vectorizes only strides that it knows */
                max_tap(x + first, (int32_t)first, 2, count, y + o.begin, where + o.begin);
            else if (count > 0)
                max_tap(x + first, (int32_t)first, stride, count, y + o.begin, where + o.begin);
        }
    }
}

static void max_pool_plane(const lk_geometry *pool, const float *x, float *y, int32_t *where)
{
    for (int64_t row = 0; row < pool->out[0]; row++, y += pool->out[1], where += pool->out[1])
        max_row(pool, x, lk__geometry_window(pool, 0, row), y, where);
}

/* ------------------------------------------------------------------------------------------------------------------ */

void lk__max_pool(const lk_geometry *pool, const float *x, float *y, int32_t *where)
{
    int64_t in = pool->in[0] * pool->in[1] * pool->channels, out = pool->out[0] * pool->out[1] * pool->channels;
    for (int64_t g = 0; g < pool->images; g++, x += in, y += out, where += out) {
        if (pool->channels == 1)
            max_pool_plane(pool, x, y, where);
        else
            max_vectors(pool, x, y, where);
    }
}

void lk__max_pool_grad(const lk_geometry *pool, const float *dy, const int32_t *where, float *dx)
{
    int64_t n = pool->channels, in = pool->in[0] * pool->in[1] * n, outputs = pool->out[0] * pool->out[1];
    memset(dx, 0, (size_t)(pool->images * in) * sizeof *dx);
    for (int64_t g = 0; g < pool->images; g++, dx += in)
        for (int64_t o = 0; o < outputs; o++, dy += n, where += n)
            for (int64_t i = 0; i < n; i++)
                dx[where[i] * n + i] += dy[i];
}
