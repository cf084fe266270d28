#include "cpu/max_pool.h"

#include "base/bf16.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef lk_pixel_range range;

/* `bf16` says whether x is bf16 or f32; it is a constant wherever these bodies are inlined. y is f32. Rows and vectors
 * are given by the number of their first element. */
typedef struct operands {
    bool bf16;
    const void *x;
    float *y;
    int32_t *where;
} operands;

/* Replaces maximum `to` by element `from` of x if that is greater. It has no branch, so that loops over it become
 * vectors. */
LK_BODY void max_pool_take_maximum(const operands *o, int64_t from, int32_t index, int64_t to)
{
    float x = lk__element(o->x, from, o->bf16), y = o->y[to];
    bool greater = !(x <= y) & !isnan(y); /* also if only x is NaN */
    o->y[to] = greater ? x : y;
    o->where[to] = greater ? index : o->where[to];
}

/* --- vectors ------------------------------------------------------------------------------------------------------ */

LK_BODY void max_vector(const lk_geometry *pool, const operands *o, int64_t x, range rows, range columns, int64_t y)
{
    int64_t n = pool->channels, first = rows.begin * pool->in[1] + columns.begin;
    for (int64_t i = 0; i < n; i++) {
        o->y[y + i] = lk__element(o->x, x + first * n + i, o->bf16);
        o->where[y + i] = (int32_t)first;
    }
    for (int64_t row = rows.begin; row < rows.end; row++) {
        for (int64_t column = columns.begin; column < columns.end; column++) {
            int64_t at = row * pool->in[1] + column;
            LK_ANY_ORDER
            for (int64_t i = 0; i < n; i++)
                max_pool_take_maximum(o, x + at * n + i, (int32_t)at, y + i);
        }
    }
}

LK_BODY void max_vectors(const lk_geometry *pool, const operands *o, int64_t x, int64_t y)
{
    for (int64_t row = 0; row < pool->out[0]; row++) {
        range rows = lk__geometry_window(pool, 0, row);
        for (int64_t column = 0; column < pool->out[1]; column++, y += pool->channels)
            max_vector(pool, o, x, rows, lk__geometry_window(pool, 1, column), y);
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

LK_BODY void max_tap(const operands *o, int64_t x, int32_t first, int64_t stride, int64_t count, int64_t y)
{
    LK_ANY_ORDER
    for (int32_t i = 0; i < (int32_t)count; i++)
        max_pool_take_maximum(o, x + i * stride, first + i * (int32_t)stride, y + i);
}

LK_BODY void max_row(const lk_geometry *pool, const operands *o, int64_t x, range rows, int64_t y)
{
    int64_t stride = pool->stride[1];
    for (int64_t i = 0; i < pool->out[1]; i++) {
        int64_t first = rows.begin * pool->in[1] + lk__geometry_window(pool, 1, i).begin;
        o->y[y + i] = lk__element(o->x, x + first, o->bf16);
        o->where[y + i] = (int32_t)first;
    }
    for (int64_t row = rows.begin; row < rows.end; row++) {
        for (int64_t tap = 0; tap < pool->kernel[1]; tap++) {
            range c = max_pool_columns_with(pool, tap);
            int64_t first = row * pool->in[1] + c.begin * stride - pool->padding[1] + tap, count = c.end - c.begin;
            if (count > 0 && stride == 2) /* clang vectorizes only strides that it knows */
                max_tap(o, x + first, (int32_t)first, 2, count, y + c.begin);
            else if (count > 0)
                max_tap(o, x + first, (int32_t)first, stride, count, y + c.begin);
        }
    }
}

LK_BODY void max_plane(const lk_geometry *pool, const operands *o, int64_t x, int64_t y)
{
    for (int64_t row = 0; row < pool->out[0]; row++, y += pool->out[1])
        max_row(pool, o, x, lk__geometry_window(pool, 0, row), y);
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* Pools the plane that begins at element x of o->x. */
LK_BODY void max_pool_body(const lk_geometry *pool, const operands *o, int64_t x)
{
    if (pool->channels == 1)
        max_plane(pool, o, x, 0);
    else
        max_vectors(pool, o, x, 0);
}

LK_AVX2 static void max_pool_avx2(const lk_geometry *pool, bool bf16, const void *from, int64_t x, float *y,
                                  int32_t *where)
{
    if (bf16)
        max_pool_body(pool, &(operands){true, from, y, where}, x);
    else
        max_pool_body(pool, &(operands){false, from, y, where}, x);
}

static void max_pool_anywhere(const lk_geometry *pool, bool bf16, const void *from, int64_t x, float *y, int32_t *where)
{
    max_pool_body(pool, &(operands){bf16, from, y, where}, x);
}

void lk__max_pool(const lk_geometry *pool, bool bf16, const void *x, void *y, int32_t *where, float *plane)
{
    int64_t in = pool->in[0] * pool->in[1] * pool->channels, out = pool->out[0] * pool->out[1] * pool->channels;
    for (int64_t g = 0; g < pool->images; g++) {
        float *maxima = bf16 ? plane : (float *)y + g * out;
        (lk__has_avx2() ? max_pool_avx2 : max_pool_anywhere)(pool, bf16, x, g * in, maxima, where + g * out);
        if (bf16)
            lk__bf16_round(maxima, (uint16_t *)y + g * out, out);
    }
}

void lk__max_pool_grad(const lk_geometry *pool, bool bf16, const void *dy, const int32_t *where, void *dx, float *plane)
{
    int64_t n = pool->channels, in = pool->in[0] * pool->in[1] * n, out = pool->out[0] * pool->out[1] * n;
    for (int64_t g = 0; g < pool->images; g++) {
        float *sums = bf16 ? plane : (float *)dx + g * in;
        memset(sums, 0, (size_t)in * sizeof *sums);
        for (int64_t o = g * out; o < (g + 1) * out; o += n)
            for (int64_t i = 0; i < n; i++)
                sums[where[o + i] * n + i] += lk__element(dy, o + i, bf16);
        if (bf16)
            lk__bf16_round(sums, (uint16_t *)dx + g * in, in);
    }
}
