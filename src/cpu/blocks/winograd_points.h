/* Transforms of Winograd's F(4x4, 3x3) between blocks of channels and the points at which they are multiplied.
 *
 * An output of 4x4 pixels comes from 6x6 pixels of the input; either is a tile. The transforms turn the tiles of a
 * block of channels, and the kernels, into values at 36 points; the output at a point is the sum over channels of
 * products at that point.
 *
 * Operands of products are elements, and results are floats. Products of words sum over channels, forward, or over
 * tiles, for the gradient of the weights:
 *   activations  [point][block of channels][tile][LK_BLOCK], of elements or floats
 *   in words     [point][block of channels][word of tiles][LK_BLOCK][LK_PER_WORD]
 *   weights      [point][pair of blocks of filters][word of channels][LK_PAIR][LK_PER_WORD]
 *   gradients    [point][pair of blocks of filters][channel][LK_PAIR], of floats
 * All of these are aligned to a vector. */
#pragma once

#include "cpu/vector/vector.h"

#include <stdbool.h>
#include <stdint.h>

enum { LK_BLOCK = LK_WIDTH, LK_PAIR = 2 * LK_BLOCK, LK_TILE = 4, LK_POINTS = 36 };

/* A batch of images cut into tiles: each image has rows x columns of them. */
typedef struct lk_tiles {
    int64_t channels, size[2];
    int64_t padding[2]; /* of an input: its first tile begins this far before the first pixel */
    int64_t rows, columns;
} lk_tiles;

/* `count` tiles from number `first` on. */
typedef struct lk_tile_range {
    int64_t first, count;
} lk_tile_range;

/* `count` channels from `first` on; both are multiples of LK_BLOCK. */
typedef struct lk_channel_range {
    int64_t first, count;
} lk_channel_range;

/* Returns the distance from one point to the next for `values` values. The extra LK_PAIR values keep the points from
 * sharing the cache's sets. */
static inline int64_t lk__point_stride(int64_t values)
{
    return values + LK_PAIR;
}

/* Rounds channels up to LK_PAIR, since blocks are multiplied in pairs. */
static inline int64_t lk__paired(int64_t channels)
{
    return (channels + LK_PAIR - 1) / LK_PAIR * LK_PAIR;
}

/* Returns the number of words that hold these tiles. */
static inline int64_t lk__tile_words(int64_t tiles)
{
    return (tiles + LK_PER_WORD - 1) / LK_PER_WORD;
}

#define lk__points_of_input_in_words LK_ISA(lk__points_of_input_in_words)
#define lk__points_of_input LK_ISA(lk__points_of_input)
#define lk__points_of_gradient LK_ISA(lk__points_of_gradient)
#define lk__output_of_points LK_ISA(lk__output_of_points)
#define lk__points_of_kernels LK_ISA(lk__points_of_kernels)
#define lk__kernels_of_points LK_ISA(lk__kernels_of_points)

/* Transforms inputs to points, of stride lk__point_stride(c.count * t.count). */
void lk__points_of_input(const lk_tiles *tiles, const element *x, lk_tile_range t, lk_channel_range c, element *points);

/* The same in words, of stride lk__point_stride(c.count * w), where w is LK_PER_WORD * lk__tile_words(t.count). An odd
 * last tile is joined with zeros. */
void lk__points_of_input_in_words(const lk_tiles *tiles, const element *x, lk_tile_range t, lk_channel_range c,
                                  element *points);

/* Transforms gradients of outputs to points in words, of stride lk__point_stride(lk__paired(c.count) * w). A block that
 * only completes a pair becomes zeros. */
void lk__points_of_gradient(const lk_tiles *tiles, const element *dy, lk_tile_range t, lk_channel_range c,
                            element *points);

/* Transforms points of stride lk__point_stride(lk__paired(c.count) * t.count) to outputs. bias: from channel 0 on; may
 * be NULL. passed: see block_conv.h; may be NULL. */
void lk__output_of_points(const lk_tiles *tiles, const float *points, const element *bias, lk_tile_range t,
                          lk_channel_range c, element *y, uint8_t *passed);

/* Row-major weights [filters, channels, 3, 3] and the direction in which a convolution uses them. */
typedef struct lk_kernels {
    int64_t filters, channels;
    bool for_input_grad; /* from filters to channels, each kernel rotated by 180 degrees */
} lk_kernels;

/* Transforms the kernels that produce the channels `to` to points, of stride lk__point_stride(lk__paired(to.count) *
 * n), where n is the number of channels summed over. A block that only completes a pair becomes zeros. */
void lk__points_of_kernels(const lk_kernels *kernels, const element *w, lk_channel_range to, element *points);

/* Transforms the points of the gradients of filters `to` for channels `from`, of stride
 * lk__point_stride(lk__paired(to.count) * from.count), to their place in dw. */
void lk__kernels_of_points(const lk_kernels *kernels, const float *points, lk_channel_range from, lk_channel_range to,
                           float *dw);
