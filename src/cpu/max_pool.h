/* Maximum pooling over vectors. oneDNN's pooling loses NaN, and gives the lowest finite number for a window of
 * -infinity, so a network that has diverged would look sound after it.
 *
 * Every layout of activations is [planes][H][W][n] for some n: 1 if it is row-major, the channels of a block, all
 * channels of an image (nhwc), or eight or sixteen images times all channels (lanes.h). The n elements of a vector are
 * independent. To these functions a plane is an image, and its n elements are its channels: pool->images is the number
 * of planes, and pool->channels is n. Every window must hold an element. */
#pragma once

#include "ops/geometry.h"

/* Pools x [planes][H][W][n] to y [planes][H'][W'][n], both bf16 or else f32. where, in the order of y, receives the
 * index row * W + column of each window's first maximum; NaN counts as greater than any number. For bf16 `plane` must
 * hold a plane of y in f32; f32 does not use it. */
void lk__max_pool(const lk_geometry *pool, bool bf16, const void *x, void *y, int32_t *where, float *plane);

/* Computes dx = the sum of dy over the windows whose maximum the element was, added in f32 in the order of dy. For bf16
 * `plane` must hold a plane of dx in f32. */
void lk__max_pool_grad(const lk_geometry *pool, bool bf16, const void *dy, const int32_t *where, void *dx,
                       float *plane);
