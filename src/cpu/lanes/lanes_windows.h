/* The windows of a pooling of lanes.h, in rows or columns. */
#pragma once

#include "cpu/lanes/lanes.h"

typedef struct lk_lanes_range {
    int64_t begin, end;
} lk_lanes_range;

/* Returns the inputs along `axis` that window `o` covers, without padding. */
static inline lk_lanes_range lk__lanes_window(const lk_lanes_pool *pool, int axis, int64_t o)
{
    int64_t begin = o * pool->stride[axis] - pool->padding[axis], end = begin + pool->kernel[axis];
    return (lk_lanes_range){begin < 0 ? 0 : begin, end > pool->in[axis] ? pool->in[axis] : end};
}

/* Returns the number of elements that the average of a window divides by. */
static inline float lk__lanes_divisor(const lk_lanes_pool *pool, lk_lanes_range rows, lk_lanes_range columns)
{
    if (pool->count_padding)
        return (float)(pool->kernel[0] * pool->kernel[1]);
    return (float)((rows.end - rows.begin) * (columns.end - columns.begin));
}

/* Returns the number of rows (axis 0) or columns (axis 1) of the convolution's result that the pooling reads; they
 * begin at 0. */
static inline int64_t lk__lanes_used(const lk_lanes_block *block, int axis)
{
    const lk_lanes_pool *pool = &block->pool;
    return lk__lanes_window(pool, axis, pool->out[axis] - 1).end;
}
