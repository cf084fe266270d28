/* The sizes of a convolution or a pooling, and how its windows lie over the input, for kernels of every device. */
#pragma once

#include "lockstep/ops.h"

#include <stdbool.h>
#include <stdint.h>

/* x: [images, channels, in].  y: [images, filters, out].  Pairs are vertical, horizontal. A pooling is described as the
 * convolution of each channel for itself: one filter a channel, as many groups as channels. */
typedef struct lk_geometry {
    int64_t images, channels, filters, groups;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    bool count_padding; /* average pooling: the divisor counts padding too */
} lk_geometry;

/* Describe the operator that computes y from x, given their shapes. In `opts` every default is filled in. */
lk_geometry lk__geometry_of_conv(lk_shape x, lk_shape w, lk_shape y, const lk_conv2d_opts *opts);
lk_geometry lk__geometry_of_pool(lk_shape x, lk_shape y, const lk_pool2d_opts *opts);

/* The pixels [begin, end) along one axis. */
typedef struct lk_pixel_range {
    int64_t begin, end;
} lk_pixel_range;

/* Returns the inputs along `axis` that the window of output `o` covers, without padding. Dilation must be 1. */
static inline lk_pixel_range lk__geometry_window(const lk_geometry *g, int axis, int64_t o)
{
    int64_t begin = o * g->stride[axis] - g->padding[axis], end = begin + g->kernel[axis];
    lk_pixel_range inside = {begin < 0 ? 0 : begin, end > g->in[axis] ? g->in[axis] : end};
    return inside;
}

/* Returns the number of elements that the average of a window divides by. */
static inline int64_t lk__geometry_divisor(const lk_geometry *g, lk_pixel_range rows, lk_pixel_range columns)
{
    if (g->count_padding)
        return g->kernel[0] * g->kernel[1];
    return (rows.end - rows.begin) * (columns.end - columns.begin);
}

/* Return the numbers of elements of x, y and w. */
static inline int64_t lk__geometry_x_count(const lk_geometry *g)
{
    return g->images * g->channels * g->in[0] * g->in[1];
}

static inline int64_t lk__geometry_y_count(const lk_geometry *g)
{
    return g->images * g->filters * g->out[0] * g->out[1];
}

static inline int64_t lk__geometry_w_count(const lk_geometry *g)
{
    return g->filters * (g->channels / g->groups) * g->kernel[0] * g->kernel[1];
}
