/* The parts that the kernels of lanes.h on tiles share.
 *
 * In the layout of bf16 a word holds two channels of an image, so the words of sixteen images are a row of the right
 * tile of a product: the rows of a tile are pairs of channels, its columns are images. A row of a kernel's window is a
 * contiguous run of such rows.
 *
 * If x has a single channel, half of each word would be 0, and a run would be as short as the kernel is wide. Then the
 * rows of a window become channels: x is gathered into [row of the result][column][taps of the window's column], and
 * the kernel has one row. */
#pragma once

#include "cpu/lanes/lanes_tiles.h"

#define lk__tile_lanes_conv LK_ISA(lk__tile_lanes_conv)
#define lk__tile_lanes_plane_bytes LK_ISA(lk__tile_lanes_plane_bytes)
#define lk__tile_lanes_inside LK_ISA(lk__tile_lanes_inside)
#define lk__tile_lanes_plane LK_ISA(lk__tile_lanes_plane)
#define lk__tile_lanes_block LK_ISA(lk__tile_lanes_block)
#define lk__tile_lanes_join LK_ISA(lk__tile_lanes_join)
#define lk__tile_lanes_transpose LK_ISA(lk__tile_lanes_transpose)
#define lk__tile_lanes_spread LK_ISA(lk__tile_lanes_spread)

/* One block of images of x, as a convolution reads it. Beyond both ends of its rows lie zeros as far as windows reach;
 * rows of padding are absent. */
typedef struct lk_lanes_plane {
    const element *first; /* row 0, and the first column of the first window */
    int64_t row_step;     /* elements from row to row */
} lk_lanes_plane;

static inline bool lk__tile_lanes_is_gathered(const lk_lanes_conv *conv)
{
    return conv->in[2] == 1 && conv->kernel[0] > 1;
}

/* Returns the convolution that is computed in place of `conv`: the same, or that of the gathered x. Its weights, and
 * their gradient, lie in memory as those of `conv`. */
lk_lanes_conv lk__tile_lanes_conv(const lk_lanes_conv *conv);

/* Returns the bytes of the copy that lk__tile_lanes_plane may need. */
size_t lk__tile_lanes_plane_bytes(const lk_lanes_conv *conv);

/* Returns where row 0 of x lies in its copy with padding, which begins at `memory`; NULL if x is not copied so. Rows
 * lie *row_step elements apart. */
element *lk__tile_lanes_inside(const lk_lanes_conv *conv, void *memory, int64_t *row_step);

/* Returns one block of images, gathered or with its padding, in `memory` if it is no longer x itself. If x is
 * lk__tile_lanes_inside, the caller wrote it there, with zeros around it. */
lk_lanes_plane lk__tile_lanes_plane(const lk_lanes_conv *conv, const element *x, void *memory);

/* Runs the forward pass for block b of images. x points to that block; y and saved are those of all images. memory:
 * lk__lanes_forward_bytes. Configures the tiles. */
void lk__tile_lanes_block(const lk_lanes_block *block, int64_t b, const element *x, const element *packed,
                          const float *bias, element *y, uint8_t *saved, void *memory);

/* For sums over images, a word holds the same element of an image of each of two blocks, and a row of words those of
 * all 32. */

/* Joins n words of two channels of two blocks of images to 2 n rows. b: NULL if there is no second block, which gives
 * zeros. */
void lk__tile_lanes_join(const element *a, const element *b, int64_t n, element *to);

/* Transposes sixteen rows, so that they become columns. stride: elements from word of images to word of images. */
void lk__tile_lanes_transpose(const element *rows, element *to, int64_t stride);

/* Computes rows of dconv, the gradient of the convolution's result, of one or two blocks of images: [pixel][filters, in
 * whole words of two][LK_WIDTH words of images]. It has the columns that the pooling reads. */
void lk__tile_lanes_spread(const lk_lanes_block *block, const lk_lanes_images *images, int n, lk_pixel_range rows,
                           element *to);
