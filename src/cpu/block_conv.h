/* Convolution of activations in blocks of channels, as many as a vector has lanes: straight on the layout nChw8c or
 * nChw16c. There are several algorithms, each compiled for several instruction sets (isa.h); what an element is, is
 * with each algorithm a function of the shape, whatever the element's place and the width of vectors. */
#ifndef LK_CPU_BLOCK_CONV_H
#define LK_CPU_BLOCK_CONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk_block_conv {
    int64_t images;
    int64_t channels, filters; /* multiples of the algorithm's `block` */
    int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
} lk_block_conv;

/* Weights: plain [filters, channels, KH, KW], and memory in which an algorithm keeps them in its own order. */
typedef struct lk_block_weights {
    const float *plain;
    float *kept;  /* of kept_bytes, aligned as a cache line; NULL: they are not kept */
    bool is_made; /* they are there from a call before; else this call brings them there */
} lk_block_weights;

typedef struct lk_block_algorithm {
    const char *name;
    int block; /* channels of a block */

    bool (*takes)(const lk_block_conv *conv);

    /* Bytes that `memory` of the functions below has to have, aligned as a cache line. */
    size_t (*memory)(const lk_block_conv *conv);

    /* Bytes of weights in the order that conv2d, or input_grad, wants. */
    size_t (*kept_bytes)(const lk_block_conv *conv, bool for_input_grad);

    /* y = x * w + bias, or without where bias is NULL. With `passed` it is relu of that, and `passed` gets a bit for
     * each element of y in memory, set where it is above 0. */
    void (*conv2d)(const lk_block_conv *conv, const float *x, const lk_block_weights *w, const float *bias, float *y,
                   uint8_t *passed, void *memory);
    /* dx from dy and w. */
    void (*input_grad)(const lk_block_conv *conv, const float *dy, const lk_block_weights *w, float *dx, void *memory);
    /* dw, plain, from dy and x. */
    void (*weight_grad)(const lk_block_conv *conv, const float *dy, const float *x, float *dw, void *memory);
} lk_block_algorithm;

/* The sum over the kernel's taps of products of matrices. For each tap there is a list of pairs of pixels, one of x and
 * one of y, that it connects; what lies in the padding is on no list, and any stride is just another list. A list goes
 * over several images, so small images fill tiles too. An element of a result is one chain of fused multiply-adds over
 * (tap, channel); of the weights' gradient, over the pixels of a group of images, and groups are added up. */
extern const lk_block_algorithm lk__block_direct_avx2, lk__block_direct_avx512, lk__block_direct_emulated;

/* Winograd's F(4x4, 3x3), for kernels of 3x3 with stride 1: a quarter of the multiplications (Lavin, Gray, "Fast
 * Algorithms for Convolutional Neural Networks", 2016). Its results are further from exact ones, by a factor of about
 * ten. */
extern const lk_block_algorithm lk__block_winograd_avx2, lk__block_winograd_avx512, lk__block_winograd_emulated;

/* Those that run here: of lk__isa(). NULL where that is. */
const lk_block_algorithm *lk__block_direct(void);
const lk_block_algorithm *lk__block_winograd(void);

#endif
