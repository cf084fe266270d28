/* The gradient of the weights of a depthwise convolution, which has as many groups as channels and filters.
 *
 * A plane is one channel of one image. A vector holds the same pixel of as many neighboring planes as it has lanes, so
 * lanes are full even if channels fill no blocks: two images of 24 channels are three vectors of sixteen planes. Blocks
 * of channels (nChw8c, nChw16c) are such vectors already; row-major planes are transposed, a block of planes at a time,
 * into memory that stays in the first cache. A tap skips padding, so any stride and dilation will do.
 *
 * The bits of an element depend on the shape alone, neither on the layout of the operands nor on the width of vectors.
 * For each block of planes a tap has a chain of fused multiply-adds over the pixels, in strips of up to seven rows, or
 * two chains, for even and for odd rows of a strip. These sums are added over the images whose planes share a lane of
 * sixteen, and then over the lanes of a channel. */
#pragma once

#include "ops/geometry.h"

#include <stddef.h>

/* An operand, row-major, or in blocks of as many channels as a vector has lanes. Blocks are aligned as vectors. */
typedef struct lk_depthwise_planes {
    const float *data;
    bool in_blocks;
} lk_depthwise_planes;

typedef struct lk_depthwise_kernels {
    const char *name; /* "depthwise:avx2" */

    /* Returns the bytes that `memory` must have, aligned to a cache line. */
    size_t (*memory)(const lk_geometry *conv);

    /* Computes dw [channels, 1, KH, KW] from dy and x. */
    void (*weight_grad)(const lk_geometry *conv, lk_depthwise_planes dy, lk_depthwise_planes x, float *dw,
                        void *memory);
} lk_depthwise_kernels;

extern const lk_depthwise_kernels lk__depthwise_avx2, lk__depthwise_avx512, lk__depthwise_emulated;
