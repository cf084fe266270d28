/* Winograd's convolution with images in the vector lanes: F(2x2, 5x5) and F(4x4, 3x3), for the convolutions of lanes.h.
 *
 * The result is cut into patches of 2x2 or 4x4 pixels of a block of images, each of which comes from 6x6 pixels of x. A
 * patch, and a kernel, has a value at each of 36 points; those of the result are products at the point, summed over
 * channels: 36 multiplications in place of 100 or 144. Gradients are the transposes of the same three steps, over the
 * same patches, so they leave out what the forward pass leaves out.
 *
 * An element of y at a point is one chain of fused multiply-adds over channels. dx adds up patches in the order of rows
 * and columns. dw at a point is summed lane by lane over patches, images before rows before columns, then over lanes,
 * for a number of patches that is a function of the shape, and these sums are added up in order. */
#ifndef LK_CPU_LANES_WINOGRAD_H
#define LK_CPU_LANES_WINOGRAD_H

#include "cpu/lanes.h"

/* Compiled for an instruction set (vector.h), whose vectors are as wide as a block has images. */
typedef struct lk_lanes_winograd {
    const char *name;

    /* Kernels of 5x5 or 3x3 with no padding beyond their reach, and either no pooling or one of 2x2 without padding. */
    bool (*takes)(const lk_lanes_block *block);

    /* Floats that the kernels' points take. */
    size_t (*packed_count)(const lk_lanes_conv *conv);

    /* w [out channels, in channels, KH, KW] at the points, for both directions. */
    void (*pack)(const lk_lanes_conv *conv, const float *w, float *packed);

    /* Bytes that `memory` of the functions below has to have, aligned as a cache line. */
    size_t (*memory)(const lk_lanes_block *block);

    /* As lk__lanes_block_forward. */
    void (*forward)(const lk_lanes_block *block, const float *x, const float *packed, const float *bias, float *y,
                    uint8_t *saved, void *memory);

    /* As lk__lanes_block_grad, but dw may be NULL too. */
    void (*grad)(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory);
} lk_lanes_winograd;

extern const lk_lanes_winograd lk__lanes_winograd_avx2, lk__lanes_winograd_avx512, lk__lanes_winograd_emulated;

#endif
