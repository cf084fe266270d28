/* Average pooling of lanes.h and its gradient. An element is summed in f32, in the order of windows and their pixels,
 * and rounded once at the end. */
#include "cpu/lanes/lanes_tiles.h"

typedef lk_pixel_range range;

LK_BODY void set_zero(vec sum[LK_PER_WORD])
{
    for (int h = 0; h < LK_PER_WORD; h++)
        sum[h] = vec_zero();
}

/* y = the mean of x over a window, for all channels of a block of images. */
static void lanes_pool_average_window(const lk_geometry *pool, const element *x, range rows, range columns, element *y)
{
    int64_t step = lk__lanes_words(pool->channels) * LK_ELEMENTS;
    vec count = vec_set((float)lk__geometry_divisor(pool, rows, columns)), sum[LK_PER_WORD];
    for (int64_t i = 0; i < step; i += LK_ELEMENTS) {
        set_zero(sum);
        for (int64_t row = rows.begin; row < rows.end; row++)
            for (int64_t column = columns.begin; column < columns.end; column++) {
                vec_word word = word_load(x + (row * pool->in[1] + column) * step + i);
                for (int h = 0; h < LK_PER_WORD; h++)
                    sum[h] = vec_add(sum[h], word_part(word, h));
            }
        for (int h = 0; h < LK_PER_WORD; h++)
            sum[h] = vec_div(sum[h], count);
        word_store(y + i, word_round(sum));
    }
}

/* Returns the windows along `axis` that cover input `at`, given those that cover inputs before it; {0, 0} for the first
 * input. */
static range lanes_pool_windows_over(const lk_geometry *pool, int axis, int64_t at, range before)
{
    int64_t padded = at + pool->padding[axis], stride = pool->stride[axis];
    range windows = before;
    while (windows.end < pool->out[axis] && windows.end * stride <= padded)
        windows.end++;
    while (windows.begin < windows.end && windows.begin * stride + pool->kernel[axis] <= padded)
        windows.begin++;
    return windows;
}

/* Adds to `sum` the share of a window's dy that each of its pixels gets. */
LK_BODY void add_share(const element *dy, vec count, vec sum[LK_PER_WORD])
{
    vec_word word = word_load(dy);
    for (int h = 0; h < LK_PER_WORD; h++)
        sum[h] = vec_add(sum[h], vec_div(word_part(word, h), count));
}

static vec lanes_pool_count(const lk_geometry *pool, int64_t row, int64_t column)
{
    return vec_set(
        (float)lk__geometry_divisor(pool, lk__geometry_window(pool, 0, row), lk__geometry_window(pool, 1, column)));
}

/* dx = the sum of dy / count over the windows of a pixel. The first loop is for most poolings, where that is one. */
static void lanes_pool_sum_windows(const lk_geometry *pool, const element *dy, range rows, range columns, element *dx)
{
    int64_t step = lk__lanes_words(pool->channels) * LK_ELEMENTS;
    vec sum[LK_PER_WORD];
    if (rows.end - rows.begin == 1 && columns.end - columns.begin == 1) {
        const element *from = dy + (rows.begin * pool->out[1] + columns.begin) * step;
        vec count = lanes_pool_count(pool, rows.begin, columns.begin);
        for (int64_t i = 0; i < step; i += LK_ELEMENTS) {
            set_zero(sum);
            add_share(from + i, count, sum);
            word_store(dx + i, word_round(sum));
        }
        return;
    }
    for (int64_t i = 0; i < step; i += LK_ELEMENTS) {
        set_zero(sum);
        for (int64_t row = rows.begin; row < rows.end; row++)
            for (int64_t column = columns.begin; column < columns.end; column++)
                add_share(dy + (row * pool->out[1] + column) * step + i, lanes_pool_count(pool, row, column), sum);
        word_store(dx + i, word_round(sum));
    }
}

void lk__lanes_avg_pool(const lk_geometry *pool, const void *x, void *y)
{
    int64_t step = lk__lanes_words(pool->channels) * LK_ELEMENTS, blocks = lk__lanes_blocks(pool->images);
    const element *from = x;
    element *to = y;
    for (int64_t b = 0; b < blocks; b++, from += pool->in[0] * pool->in[1] * step)
        for (int64_t row = 0; row < pool->out[0]; row++)
            for (int64_t column = 0; column < pool->out[1]; column++, to += step)
                lanes_pool_average_window(pool, from, lk__geometry_window(pool, 0, row),
                                          lk__geometry_window(pool, 1, column), to);
}

void lk__lanes_avg_pool_grad(const lk_geometry *pool, const void *dy, void *dx)
{
    int64_t step = lk__lanes_words(pool->channels) * LK_ELEMENTS, blocks = lk__lanes_blocks(pool->images);
    const element *from = dy;
    element *to = dx;
    for (int64_t b = 0; b < blocks; b++, from += pool->out[0] * pool->out[1] * step) {
        range rows = {0, 0};
        for (int64_t row = 0; row < pool->in[0]; row++) {
            range columns = {0, 0};
            rows = lanes_pool_windows_over(pool, 0, row, rows);
            for (int64_t column = 0; column < pool->in[1]; column++, to += step) {
                columns = lanes_pool_windows_over(pool, 1, column, columns);
                lanes_pool_sum_windows(pool, from, rows, columns, to);
            }
        }
    }
}
