/* Convolution and pooling with images in the vector lanes.
 *
 * A vector holds the same channel of the same pixel of LANES images, where LANES is 8 or 16. A tensor of f32 lies in
 * memory as [N / LANES][H][W][C][LANES]. One of bf16 lies as [N / LANES][H][W][C / 2][LANES][2]: a word of 32 bits
 * holds two channels, and an instruction adds both products of a pair of words to a sum in f32. An odd last channel
 * shares its word with 0.
 *
 * This is faster than channels in the lanes, which most libraries use, when channels do not fill a block: LeNet's 20
 * and 50 channels are padded to 24 and 56 there, and the single channel of a first layer leaves seven lanes of eight
 * empty. With images in the lanes only the last block of images is padded, and a row of a kernel's window is one
 * contiguous run of (column, channel), so the inner loop has no gaps.
 *
 * An output element is one chain of multiply-adds over (row, column, channel). Its bits depend neither on its position
 * in a block nor on LANES. On tiles (tile_lanes.h) the links of the chain are sums that an instruction forms of up to
 * sixteen words, so the bits are others; and an x that is infinite, or a weight or gradient that is not finite, may
 * make more elements of its image NaN. For bf16, sums, bias, relu, pooling and gradients of parameters are in f32; y,
 * dx, and the gradient of the convolution's result, from which dx and dw are computed, are rounded. */
#pragma once

#include "lockstep/tensor.h"
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
    const void *dy;
    const uint8_t *saved;
    const void *x;
    const void *packed; /* weights, needed for dx */
    float *dw;          /* [out channels, in channels, KH, KW], plain */
    float *dbias;       /* NULL: not wanted */
    void *dx;           /* NULL: not wanted */
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

/* The kernels for one instruction set and one dtype, in which x, y, dy, dx and w are. Tensors and memory must be
 * aligned to a cache line. */
typedef struct lk_lanes_kernels {
    const char *name; /* "lanes:avx2" */
    int lanes;

    /* Returns the bytes of packed weights. */
    size_t (*packed_bytes)(const lk_lanes_conv *conv);

    /* Packs w [out channels, in channels, KH, KW] for conv2d. For the gradient of the input, which is a convolution of
     * dy, w is [in channels, out channels, KH, KW] and each kernel is rotated by 180 degrees. */
    void (*pack)(const lk_lanes_conv *conv, const void *w, bool for_gradient, void *packed);

    /* Returns the bytes of memory that forward needs, and conv2d for lk__lanes_block_of. */
    size_t (*forward_bytes)(const lk_lanes_block *block);

    /* Computes y = x * w + bias; bias may be NULL. Lanes beyond the last image become 0. */
    void (*conv2d)(const lk_lanes_conv *conv, const void *x, const void *packed, const float *bias, void *y,
                   void *memory);

    void (*avg_pool)(const lk_geometry *pool, const void *x, void *y);
    void (*avg_pool_grad)(const lk_geometry *pool, const void *dy, void *dx);

    /* Returns the bytes that the forward pass saves for the gradient.
     *
     * Average pooling, or none: [N/LANES][H'][W'][C'] with a bit for each image, set if relu let the element through.
     *
     * Max pooling: [N/LANES][pooled H'][pooled W'][C'][LANES], the index of the first maximum in its window, or 255 if
     * relu stopped it. */
    size_t (*saved_bytes)(const lk_lanes_block *block);

    /* Runs the block forward. It skips pixels that no window covers. Lanes beyond the last image become 0. */
    void (*forward)(const lk_lanes_block *block, const void *x, const void *packed, const float *bias, void *y,
                    uint8_t *saved, void *memory);

    /* Returns the bytes of memory that grad needs. */
    size_t (*grad_bytes)(const lk_lanes_block *block, bool input_grad);

    /* Computes the gradients. Sums over images go block by block, for bf16 two blocks at a time, then band of rows by
     * band, then pixel by pixel, each lane for itself, or on tiles all lanes at once; the order depends on the shape
     * alone. */
    void (*grad)(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory);
} lk_lanes_kernels;

extern const lk_lanes_kernels lk__lanes_avx2, lk__lanes_avx512, lk__lanes_emulated;
extern const lk_lanes_kernels lk__lanes_avx512bf16, lk__lanes_emulatedbf16, lk__lanes_amxbf16,
    lk__lanes_emulatedamxbf16;

/* Returns the kernels of lk__isa() for f32 or bf16; NULL: there are none. */
const lk_lanes_kernels *lk__lanes(lk_dtype dtype);
