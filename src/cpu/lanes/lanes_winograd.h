/* Winograd's convolution with images in the vector lanes, for the convolutions of lanes.h: F(2x2, 5x5) and F(4x4, 3x3),
 * after Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.
 *
 * The result is cut into patches of 2x2 or 4x4 pixels of a block of images; each patch comes from 6x6 pixels of x. A
 * transform turns these pixels, and each kernel, into values at 36 points. The result at a point is the sum over
 * channels of products at that point, so a patch and a channel take 36 multiplications instead of 100 or 144. The
 * gradients are the transposes of the same three steps over the same patches, so they leave out what the forward pass
 * leaves out.
 *
 * The order of sums depends on the shape alone. An element of y at a point is one chain of fused multiply-adds over
 * channels. dx adds up patches in the order of rows and columns. dw at a point is summed over the patches of a chunk,
 * lane by lane, images before rows before columns, then over lanes; the sums of the chunks are added up in order. */
#pragma once

#include "cpu/lanes/lanes.h"

/* The functions for one instruction set (vector.h). A vector is as wide as a block has images. */
typedef struct lk_lanes_winograd {
    const char *name;

    /* Accepts kernels of 5x5 or 3x3 whose padding is smaller than the kernel, and either no pooling or one of 2x2
     * without padding. */
    bool (*takes)(const lk_lanes_block *block);

    /* Returns the number of floats of packed kernels. */
    size_t (*packed_count)(const lk_lanes_conv *conv);

    /* Transforms w [out channels, in channels, KH, KW] to the points. The result serves both directions. */
    void (*pack)(const lk_lanes_conv *conv, const float *w, float *packed);

    /* Returns the bytes that `memory` of the functions below must have, aligned to a cache line. */
    size_t (*memory)(const lk_lanes_block *block);

    /* As lk_lanes_kernels.forward. */
    void (*forward)(const lk_lanes_block *block, const float *x, const float *packed, const float *bias, float *y,
                    uint8_t *saved, void *memory);

    /* As lk_lanes_kernels.grad, but dw may be NULL too. */
    void (*grad)(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory);
} lk_lanes_winograd;

extern const lk_lanes_winograd lk__lanes_winograd_avx2, lk__lanes_winograd_avx512, lk__lanes_winograd_emulated;
