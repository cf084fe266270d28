/* Convolution and pooling with images in the vector lanes.
 *
 * A vector holds the same channel of the same pixel of LANES images, where LANES is 8 or 16. A tensor lies in memory as
 * [N / LANES][H][W][C][LANES].
 *
 * This is faster than channels in the lanes, which most libraries use, when channels do not fill a block: LeNet's 20
 * and 50 channels are padded to 24 and 56 there, and the single channel of a first layer leaves seven lanes of eight
 * empty. With images in the lanes only the last block of images is padded, and a row of a kernel's window is one
 * contiguous run of (column, channel), so the inner loop has no gaps.
 *
 * An output element is one chain of fused multiply-adds over (row, column, channel). Its bits depend neither on its
 * position in a block nor on LANES. */
#pragma once

#include "ops/geometry.h"

#include <stddef.h>

typedef struct lk_lanes_conv { /* stride 1, dilation 1, one group */
    int64_t images;
    int64_t in[3], out[3]; /* height, width, channels */
    int64_t kernel[2];
    int64_t padding[2]; /* on both sides; a negative number leaves out as many rows or columns of the input */
} lk_lanes_conv;

/* A convolution, relu and pooling in one pass. */
typedef struct lk_lanes_block {
    lk_lanes_conv conv;
    lk_geometry pool; /* over conv.out, in windows that do not overlap; a block without pooling has a kernel of 1x1 */
    bool relu, max;   /* max: maximum of at most 255 elements; otherwise the average */
    bool plain_x, plain_dy; /* for grad only: these operands are row-major */
} lk_lanes_block;

typedef struct lk_lanes_grad {
    const float *dy;
    const uint8_t *saved;
    const float *x;
    const float *packed; /* weights, needed for dx */
    float *dw;           /* [out channels, in channels, KH, KW], plain */
    float *dbias;        /* NULL: not wanted */
    float *dx;           /* NULL: not wanted */
} lk_lanes_grad;

/* Describes a convolution without relu and pooling as a block. */
lk_lanes_block lk__lanes_block_of(const lk_lanes_conv *conv);

/* Returns the number of rows (axis 0) or columns (axis 1) of the convolution's result that the pooling reads; they
 * begin at 0. */
static inline int64_t lk__lanes_used(const lk_lanes_block *block, int axis)
{
    return lk__geometry_window(&block->pool, axis, block->pool.out[axis] - 1).end;
}

/* Returns the convolution that computes dx from dconv, the gradient of the convolution's result. dconv has only the
 * rows and columns that the pooling reads. */
lk_lanes_conv lk__lanes_input_grad_conv(const lk_lanes_block *block);

/* The kernels for one instruction set. Tensors and memory must be aligned to a cache line. */
typedef struct lk_lanes_kernels {
    const char *name; /* "lanes:avx2" */
    int lanes;

    /* Returns the number of floats of packed weights. */
    size_t (*packed_count)(const lk_lanes_conv *conv);

    /* Packs w [out channels, in channels, KH, KW] for conv2d. For the gradient of the input, which is a convolution of
     * dy, w is [in channels, out channels, KH, KW] and each kernel is rotated by 180 degrees. */
    void (*pack)(const lk_lanes_conv *conv, const float *w, bool for_gradient, float *packed);

    /* Computes y = x * w + bias; bias may be NULL. Lanes beyond the last image become 0. */
    void (*conv2d)(const lk_lanes_conv *conv, const float *x, const float *packed, const float *bias, float *y);

    void (*avg_pool)(const lk_geometry *pool, const float *x, float *y);
    void (*avg_pool_grad)(const lk_geometry *pool, const float *dy, float *dx);

    /* Returns the bytes that the forward pass saves for the gradient.
     *
     * Average pooling, or none: [N/LANES][H'][W'][C'] with a bit for each image, set if relu let the element through.
     *
     * Max pooling: [N/LANES][pooled H'][pooled W'][C'][LANES], the index of the first maximum in its window, or 255 if
     * relu stopped it. */
    size_t (*saved_bytes)(const lk_lanes_block *block);

    /* Runs the block forward. It skips pixels that no window covers. Lanes beyond the last image become 0. */
    void (*forward)(const lk_lanes_block *block, const float *x, const float *packed, const float *bias, float *y,
                    uint8_t *saved);

    /* Returns the bytes of memory that grad needs. */
    size_t (*grad_bytes)(const lk_lanes_block *block, bool input_grad);

    /* Computes the gradients. Sums over images go block by block, then band of rows by band, then pixel by pixel, each
     * lane for itself; the order depends on the shape alone. */
    void (*grad)(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory);
} lk_lanes_kernels;

extern const lk_lanes_kernels lk__lanes_avx2, lk__lanes_avx512, lk__lanes_emulated;

/* Returns the kernels of lk__isa(); NULL if that is NULL. */
const lk_lanes_kernels *lk__lanes(void);
