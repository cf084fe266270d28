/* Winograd's F(4x4, 3x3), between what is convolved and the points at which it is multiplied.
 *
 * An output of 4x4 pixels comes from 6x6 pixels of the input; either is a tile. Tiles of a block of channels, and
 * kernels, become values at 36 points; those of the output are products at each point, summed over channels. Points of
 * activations are [point][block of channels][tile][LK_BLOCK], of weights [point][pair of blocks of
 * filters][channel][LK_PAIR]. */
#ifndef LK_CPU_WINOGRAD_POINTS_H
#define LK_CPU_WINOGRAD_POINTS_H

#include "cpu/vector.h"

#include <stdbool.h>
#include <stdint.h>

enum { LK_BLOCK = LK_WIDTH, LK_PAIR = 2 * LK_BLOCK, LK_TILE = 4, LK_POINTS = 36 };

/* A batch of images as tiles: an image has rows x columns of them. */
typedef struct lk_tiles {
    int64_t channels, size[2];
    int64_t padding[2]; /* of an input: where its first tile begins, before the first pixel */
    int64_t rows, columns;
} lk_tiles;

/* So many tiles, from a number on. */
typedef struct lk_tile_range {
    int64_t first, count;
} lk_tile_range;

/* So many channels, from one on; both multiples of LK_BLOCK. */
typedef struct lk_channel_range {
    int64_t first, count;
} lk_channel_range;

/* From one point to the next, for `values` values: a line more, or points would share the cache's sets. */
static inline int64_t lk__point_stride(int64_t values)
{
    return values + LK_PAIR;
}

/* Blocks come in pairs: channels are rounded up to LK_PAIR. */
static inline int64_t lk__paired(int64_t channels)
{
    return (channels + LK_PAIR - 1) / LK_PAIR * LK_PAIR;
}

#define lk__points_of_input LK_ISA(lk__points_of_input)
#define lk__points_of_gradient LK_ISA(lk__points_of_gradient)
#define lk__output_of_points LK_ISA(lk__output_of_points)
#define lk__points_of_kernels LK_ISA(lk__points_of_kernels)
#define lk__kernels_of_points LK_ISA(lk__kernels_of_points)

/* Inputs to points, of stride lk__point_stride(c.count * t.count). */
void lk__points_of_input(const lk_tiles *tiles, const float *x, lk_tile_range t, lk_channel_range c, float *points);

/* Gradients of outputs to points, of stride lk__point_stride(lk__paired(c.count) * t.count), zeros in a block that is
 * there to make a pair. */
void lk__points_of_gradient(const lk_tiles *tiles, const float *dy, lk_tile_range t, lk_channel_range c, float *points);

/* Points, of the same stride, to outputs. bias: of channel 0; may be NULL. passed: see block_conv.h; may be NULL. */
void lk__output_of_points(const lk_tiles *tiles, const float *points, const float *bias, lk_tile_range t,
                          lk_channel_range c, float *y, uint8_t *passed);

/* Plain weights [filters, channels, 3, 3] as a convolution `from` some channels to others sees them. */
typedef struct lk_kernels {
    int64_t filters, channels;
    bool for_input_grad; /* from filters to channels, and turned by half a circle */
} lk_kernels;

/* Kernels that give the channels `to`, to points, of stride lk__point_stride(lk__paired(to.count) * from); zeros in a
 * block that is there to make a pair. */
void lk__points_of_kernels(const lk_kernels *kernels, const float *w, lk_channel_range to, float *points);

/* Points of gradients of the kernels of the filters `to`, of the same stride, to dw. */
void lk__kernels_of_points(const lk_kernels *kernels, const float *points, lk_channel_range to, float *dw);

#endif
