/* Convolution of activations in blocks of eight channels, for AVX2: the sum over the kernel's taps of products of
 * matrices, straight on the layout nChw8c.
 *
 * For each tap there is a list of pairs of pixels, one of x and one of y, that it connects; what lies in the padding is
 * on no list, and any stride is just another list. A list goes over several images, so small images fill tiles too. An
 * element of a result is one chain of fused multiply-adds over (tap, channel); of the weights' gradient, over the
 * pixels of a group of images, and groups are added up: a function of the shape, whatever the element's place. */
#ifndef LK_CPU_DIRECT_CONV_H
#define LK_CPU_DIRECT_CONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk_direct_conv {
    int64_t images;
    int64_t channels, filters; /* multiples of 8 */
    int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
} lk_direct_conv;

/* Bytes that `memory` of the functions below has to have, aligned as a cache line. */
size_t lk__direct_memory(const lk_direct_conv *conv);

/* y = x * w + bias, or without where bias is NULL. w: plain [filters, channels, KH, KW]. */
void lk__direct_conv2d(const lk_direct_conv *conv, const float *x, const float *w, const float *bias, float *y,
                       void *memory);

/* dx from dy and w. */
void lk__direct_input_grad(const lk_direct_conv *conv, const float *dy, const float *w, float *dx, void *memory);

/* dw, plain, from dy and x. */
void lk__direct_weight_grad(const lk_direct_conv *conv, const float *dy, const float *x, float *dw, void *memory);

#endif
