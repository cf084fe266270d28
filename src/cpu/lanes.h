/* Convolution and average pooling with images in the vector lanes, for AVX2.
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
    int64_t padding[2]; /* on both sides */
} lk_lanes_conv;

/* Floats that packed weights take. */
size_t lk__lanes_packed_count(const lk_lanes_conv *conv);

/* Packs w [out channels, in channels, KH, KW] for lk__lanes_conv2d; or, for the gradient of the input, a convolution of
 * dy, w [in channels, out channels, KH, KW] turned by half a turn. */
void lk__lanes_pack(const lk_lanes_conv *conv, const float *w, bool for_gradient, float *packed);

/* y = x * w + bias; bias may be NULL. Lanes beyond the last image become 0. */
void lk__lanes_conv2d(const lk_lanes_conv *conv, const float *x, const float *packed, const float *bias, float *y);

/* dw [out channels, in channels, KH, KW], plain; padding 0. */
void lk__lanes_weight_grad(const lk_lanes_conv *conv, const float *dy, const float *x, float *dw);

typedef struct lk_lanes_pool {
    int64_t images, channels;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2];
    bool count_padding;
} lk_lanes_pool;

void lk__lanes_avg_pool(const lk_lanes_pool *pool, const float *x, float *y);
void lk__lanes_avg_pool_grad(const lk_lanes_pool *pool, const float *dy, float *dx);

#endif
