/* Convolution and pooling with images in the vector lanes, for AVX2.
 *
 * Where channels do not fill blocks of eight, a library that puts channels into the lanes computes on padding. Here a
 * vector holds one element of eight images: a tensor lies as [N / 8][H][W][C][8], which needs no padding but in the
 * last images, and a row of a kernel's window is one contiguous run of (column, channel).
 *
 * An output element is one chain of fused multiply-adds over (row, column, channel), whatever block it is in. */
#ifndef LK_CPU_LANES_H
#define LK_CPU_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LK_LANES = 8 };

/* Whether this processor can. */
bool lk__lanes_supported(void);

typedef struct lk_lanes_conv { /* stride 1, dense kernel */
    int64_t images;
    int64_t in[3], out[3]; /* height, width, channels */
    int64_t kernel[2];
    int64_t padding[2]; /* on both sides; negative: as many rows and columns of the input are left out */
} lk_lanes_conv;

/* Floats that packed weights take. */
size_t lk__lanes_packed_count(const lk_lanes_conv *conv);

/* Packs w [out channels, in channels, KH, KW] for lk__lanes_conv2d; or, for the gradient of the input, a convolution of
 * dy, w [in channels, out channels, KH, KW] turned by half a turn. */
void lk__lanes_pack(const lk_lanes_conv *conv, const float *w, bool for_gradient, float *packed);

/* y = x * w + bias; bias may be NULL. Lanes beyond the last image become 0. */
void lk__lanes_conv2d(const lk_lanes_conv *conv, const float *x, const float *packed, const float *bias, float *y);

typedef struct lk_lanes_pool {
    int64_t images, channels;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2];
    bool count_padding;
} lk_lanes_pool;

void lk__lanes_avg_pool(const lk_lanes_pool *pool, const float *x, float *y);
void lk__lanes_avg_pool_grad(const lk_lanes_pool *pool, const float *dy, float *dx);

/* --- convolution, relu and pooling in one pass -------------------------------------------------------------------- */

typedef struct lk_lanes_block {
    lk_lanes_conv conv;
    lk_lanes_pool pool; /* of conv.out, windows that do not overlap; without pooling of 1x1 */
    bool relu, max;     /* max: of at most 255 elements; else averages */
} lk_lanes_block;

/* A convolution alone. */
lk_lanes_block lk__lanes_block_of(const lk_lanes_conv *conv);

/* Bytes that the forward pass leaves for the gradient: [N / 8][H'][W'][C'] with a bit for each image, set where relu
 * let it through; for max pooling, [N / 8][pooled H'][pooled W'][C'][8] with the index of the first maximum in its
 * window, or 255 where relu stopped it. */
size_t lk__lanes_saved_bytes(const lk_lanes_block *block);

/* Pixels that no window covers are not computed. Lanes beyond the last image become 0. */
void lk__lanes_block_forward(const lk_lanes_block *block, const float *x, const float *packed, const float *bias,
                             float *y, uint8_t *saved);

/* Bytes that a gradient needs for itself. */
size_t lk__lanes_grad_bytes(const lk_lanes_block *block, bool input_grad);

typedef struct lk_lanes_grad {
    const float *dy;
    const uint8_t *saved;
    const float *x;
    const float *packed; /* for the gradient of the input */
    float *dw;           /* [out channels, in channels, KH, KW], plain */
    float *dbias;        /* or NULL */
    float *dx;           /* or NULL */
} lk_lanes_grad;

/* The convolution that makes dx of dconv, which is as large as what the pooling covers. */
lk_lanes_conv lk__lanes_input_grad_conv(const lk_lanes_block *block);

/* Sums over images are of blocks in order, then bands of rows in order, then pixels, lane by lane. */
void lk__lanes_block_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory);

#endif
