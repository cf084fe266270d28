/* Convolution of activations in blocks of channels: the layouts nChw8c and nChw16c, in which a vector holds 8 or 16
 * neighboring channels of a pixel. Several algorithms compute it, each compiled for several instruction sets (isa.h).
 * With each algorithm the bits of an element depend on the shape alone, neither on the element's position nor on the
 * width of vectors.
 *
 * All operands of an algorithm are f32, or all are bf16. Sums are f32 in either case. A result in bf16 is rounded once;
 * the gradient of the weights is f32. */
#pragma once

#include "ops/geometry.h"

#include <stddef.h>

/* Weights in row-major order, [filters, channels, KH, KW], and memory in which an algorithm keeps them packed in its
 * own order. */
typedef struct lk_block_weights {
    const void *plain;
    void *kept;   /* of kept_bytes, aligned to a cache line; NULL: the packed weights are not kept */
    bool is_made; /* an earlier call filled `kept`; otherwise this call fills it */
} lk_block_weights;

typedef struct lk_block_algorithm {
    const char *name;
    int block; /* channels of a block; the channels and filters of a convolution are multiples of it */

    bool (*takes)(const lk_geometry *conv);

    /* Returns the bytes that `memory` of the functions below must have, aligned to a cache line. */
    size_t (*memory)(const lk_geometry *conv);

    /* Returns the bytes of packed weights for conv2d or for input_grad. */
    size_t (*kept_bytes)(const lk_geometry *conv, bool for_input_grad);

    /* Computes y = x * w + bias; bias may be NULL. If `passed` is not NULL, y is relu of that, and `passed` receives a
     * bit for each element of y in memory, set where it is above 0. */
    void (*conv2d)(const lk_geometry *conv, const void *x, const lk_block_weights *w, const void *bias, void *y,
                   uint8_t *passed, void *memory);
    /* Computes dx from dy and w. */
    void (*input_grad)(const lk_geometry *conv, const void *dy, const lk_block_weights *w, void *dx, void *memory);
    /* Computes dw, row-major, from dy and x. */
    void (*weight_grad)(const lk_geometry *conv, const void *dy, const void *x, float *dw, void *memory);
} lk_block_algorithm;

/* Direct convolution: a sum over the kernel's taps of products of matrices. For each tap there is a list of the pairs
 * of pixels, one of x and one of y, that the tap connects. Padding is on no list, and any stride is just another list.
 * A list spans several images, so small images fill tiles too. An element of a result is one chain of fused
 * multiply-adds over (tap, channel). The gradient of the weights is one chain for each piece of a chunk of images, and
 * the pieces are added up in order. */
extern const lk_block_algorithm lk__block_direct_avx2, lk__block_direct_avx512, lk__block_direct_emulated,
    lk__block_direct_avx512bf16, lk__block_direct_emulatedbf16;

/* Direct convolution on the tiles of AMX (vector/tile.h), in bf16. Rows of x are copied to tiles of sixteen images by
 * 32 channels at one pixel, which all taps share; padding is skipped. A missing block of 16 channels is taken as zeros.
 * An element of a result is a chain over (tap, 32 channels) of sums that the instruction forms, from 0 on, to which
 * bias is added; so its bits differ from those of other direct convolutions. The gradient of the weights is a chain
 * over 32 pairs of images and pixels, in chunks of up to 32 images and of rows of dy, one after the other; it
 * multiplies the columns of padding too, so a gradient that is not finite makes more sums NaN than in those.
 *
 * Images fill tiles in sixteens: a call with fewer takes as long as one with sixteen. */
extern const lk_block_algorithm lk__block_tiles_amxbf16, lk__block_tiles_emulatedamxbf16;

/* Winograd's F(4x4, 3x3), for kernels of 3x3 with stride 1, takes a quarter of the multiplications (Lavin and Gray,
 * "Fast Algorithms for Convolutional Neural Networks", 2016). Its rounding errors are about ten times as large. With
 * bf16 the transformed operands are rounded to bf16 too. */
extern const lk_block_algorithm lk__block_winograd_avx2, lk__block_winograd_avx512, lk__block_winograd_emulated,
    lk__block_winograd_avx512bf16, lk__block_winograd_emulatedbf16;

/* Return the algorithms of lk__isa(); NULL if that is NULL. */
const lk_block_algorithm *lk__block_direct(void);
const lk_block_algorithm *lk__block_winograd(void);
/* The same for bf16; lk__isa() must have kernels for it. */
const lk_block_algorithm *lk__block_direct_bf16(void);
const lk_block_algorithm *lk__block_winograd_bf16(void);
/* The same; NULL: this instruction set has no tiles. */
const lk_block_algorithm *lk__block_tiles(void);
