/* Maximum pooling over vectors. oneDNN's own loses NaN, and gives the lowest finite number for a window of -infinity:
 * a network that has diverged would look sound behind it.
 *
 * Every layout of activations is [groups][H][W][n] for some n: 1 where it is plain, the channels of a block, all
 * channels of an image (nhwc), or eight images times all channels (lanes.h). The elements of a vector have nothing to
 * do with each other. */
#ifndef LK_CPU_MAX_POOL_H
#define LK_CPU_MAX_POOL_H

#include <stdint.h>

typedef struct lk_max_pool {
    int64_t groups, n;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2]; /* vertical, horizontal; every window holds an element */
} lk_max_pool;

/* x: [groups][H][W][n] → y: [groups][H'][W'][n]. where, in y's order: the index row * W + column of each window's first
 * maximum; a NaN is greater than any number. */
void lk__max_pool(const lk_max_pool *pool, const float *x, float *y, int32_t *where);

/* dx = the sum of dy over the windows whose maximum the element was, added in dy's order. */
void lk__max_pool_grad(const lk_max_pool *pool, const float *dy, const int32_t *where, float *dx);

#endif
