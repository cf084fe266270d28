/* Convolution and pooling with images in the vector lanes.
 *
 * Where channels do not fill blocks, a library that puts channels into the lanes computes on padding. Here a vector
 * holds one element of as many images as it has lanes, LANES, which is 8 or 16: a tensor lies as
 * [N / LANES][H][W][C][LANES], which needs no padding but in the last images, and a row of a kernel's window is one
 * contiguous run of (column, channel).
 *
 * An output element is one chain of fused multiply-adds over (row, column, channel), whatever block it is in, and
 * whatever LANES is. */
#ifndef LK_CPU_LANES_H
#define LK_CPU_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk_lanes_conv { /* stride 1, dense kernel */
    int64_t images;
    int64_t in[3], out[3]; /* height, width, channels */
    int64_t kernel[2];
    int64_t padding[2]; /* on both sides; negative: as many rows and columns of the input are left out */
} lk_lanes_conv;

typedef struct lk_lanes_pool {
    int64_t images, channels;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2];
    bool count_padding;
} lk_lanes_pool;

/* Convolution, relu and pooling in one pass. */
typedef struct lk_lanes_block {
    lk_lanes_conv conv;
    lk_lanes_pool pool;     /* of conv.out, windows that do not overlap; without pooling of 1x1 */
    bool relu, max;         /* max: of at most 255 elements; else averages */
    bool plain_x, plain_dy; /* of grad alone: they lie plain */
} lk_lanes_block;

typedef struct lk_lanes_grad {
    const float *dy;
    const uint8_t *saved;
    const float *x;
    const float *packed; /* for the gradient of the input */
    float *dw;           /* [out channels, in channels, KH, KW], plain */
    float *dbias;        /* or NULL */
    float *dx;           /* or NULL */
} lk_lanes_grad;

/* A convolution alone. */
lk_lanes_block lk__lanes_block_of(const lk_lanes_conv *conv);

/* The convolution that makes dx of dconv, which is as large as what the pooling covers. */
lk_lanes_conv lk__lanes_input_grad_conv(const lk_lanes_block *block);

/* The kernels, compiled for an instruction set. Tensors and memory are aligned as a cache line. */
typedef struct lk_lanes_kernels {
    const char *name; /* "lanes:avx2" */
    int lanes;

    /* Floats that packed weights take. */
    size_t (*packed_count)(const lk_lanes_conv *conv);

    /* Packs w [out channels, in channels, KH, KW] for conv2d; or, for the gradient of the input, a convolution of dy,
     * w [in channels, out channels, KH, KW] turned by half a turn. */
    void (*pack)(const lk_lanes_conv *conv, const float *w, bool for_gradient, float *packed);

    /* y = x * w + bias; bias may be NULL. Lanes beyond the last image become 0. */
    void (*conv2d)(const lk_lanes_conv *conv, const float *x, const float *packed, const float *bias, float *y);

    void (*avg_pool)(const lk_lanes_pool *pool, const float *x, float *y);
    void (*avg_pool_grad)(const lk_lanes_pool *pool, const float *dy, float *dx);

    /* Bytes that the forward pass leaves for the gradient: [N / LANES][H'][W'][C'] with a bit for each image, set where
     * relu let it through; for max pooling, [N / LANES][pooled H'][pooled W'][C'][LANES] with the index of the first
     * maximum in its window, or 255 where relu stopped it. */
    size_t (*saved_bytes)(const lk_lanes_block *block);

    /* Pixels that no window covers are not computed. Lanes beyond the last image become 0. */
    void (*forward)(const lk_lanes_block *block, const float *x, const float *packed, const float *bias, float *y,
                    uint8_t *saved);

    /* Bytes that a gradient needs for itself. */
    size_t (*grad_bytes)(const lk_lanes_block *block, bool input_grad);

    /* Sums over images are of blocks in order, then bands of rows in order, then pixels, lane by lane. */
    void (*grad)(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory);
} lk_lanes_kernels;

extern const lk_lanes_kernels lk__lanes_avx2, lk__lanes_avx512, lk__lanes_emulated;

/* Those of lk__isa(); NULL where that is. */
const lk_lanes_kernels *lk__lanes(void);

#endif
