/* Windows of a pooling of lanes.h. */
#ifndef LK_CPU_LANES_WINDOWS_H
#define LK_CPU_LANES_WINDOWS_H

#include "cpu/lanes.h"

typedef struct lk_lanes_range {
    int64_t begin, end;
} lk_lanes_range;

/* Inputs of an axis that window `o` covers. */
static inline lk_lanes_range lk__lanes_window(const lk_lanes_pool *pool, int axis, int64_t o)
{
    int64_t begin = o * pool->stride[axis] - pool->padding[axis], end = begin + pool->kernel[axis];
    return (lk_lanes_range){begin < 0 ? 0 : begin, end > pool->in[axis] ? pool->in[axis] : end};
}

/* Elements that the average of a window is over. */
static inline float lk__lanes_divisor(const lk_lanes_pool *pool, lk_lanes_range rows, lk_lanes_range columns)
{
    if (pool->count_padding)
        return (float)(pool->kernel[0] * pool->kernel[1]);
    return (float)((rows.end - rows.begin) * (columns.end - columns.begin));
}

/* Rows or columns of the convolution's result that the pooling reads, from 0 on. */
static inline int64_t lk__lanes_used(const lk_lanes_block *block, int axis)
{
    const lk_lanes_pool *pool = &block->pool;
    return lk__lanes_window(pool, axis, pool->out[axis] - 1).end;
}

#endif
