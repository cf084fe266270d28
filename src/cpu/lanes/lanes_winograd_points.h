/* Transforms between images in the lanes and Winograd's points, for lanes_winograd.c.
 *
 * Patches are numbered by block of images, then row, then column. Points of activations lie as
 * [point][patch][channel][lanes], points of kernels as [point][out channel][in channel]. */
#pragma once

#include "cpu/lanes/lanes.h"
#include "cpu/lanes/winograd_transforms.h"
#include "cpu/vector/vector.h"

enum { LK_POINTS = LK_SIDE * LK_SIDE };

typedef struct lk_patches {
    const lk_lanes_block *block;
    int side;              /* a patch has side x side pixels of the result */
    int64_t used[2];       /* rows and columns of the convolution's result that the pooling reads */
    int64_t rows, columns; /* number of patches of an image */
    int64_t count;         /* number of patches of all images */
    int64_t strip, strips; /* a row of patches is cut into `strips` strips of at most `strip` patches */
} lk_patches;

/* Largest number of patches in a strip. Neighboring patches overlap in x, and a strip transforms what they share
 * once. */
enum { LK_STRIP = 4, LK_STRIP_COLUMNS = (LK_STRIP - 1) * 4 + LK_SIDE };

/* `count` patches from `first` on, in whole strips. */
typedef struct lk_patch_range {
    int64_t first, count;
} lk_patch_range;

/* `count` channels from `first` on. */
typedef struct lk_channel_range {
    int64_t first, count;
} lk_channel_range;

/* Returns the distance from one point to the next for `values` values. An extra cache line keeps the points from
 * sharing the cache's sets. */
static inline int64_t lk__patch_stride(int64_t values)
{
    return values + 16;
}

/* The same for kernels. Sums of gradients are stored as whole vectors, hence the space behind them. */
static inline int64_t lk__kernel_stride(int64_t kernels)
{
    return lk__patch_stride((kernels + 8 + 15) / 16 * 16);
}

/* Transforms x to the points of all channels; lk__row_of_x gives only the six points of row `row`. */
#define lk__points_of_x LK_ISA(lk__points_of_x)
void lk__points_of_x(const lk_patches *patches, const float *x, lk_patch_range chunk, float *points);
#define lk__row_of_x LK_ISA(lk__row_of_x)
void lk__row_of_x(const lk_patches *patches, const float *x, lk_patch_range chunk, int row, float *points);

/* Transforms points to dx and adds them to it. A block of images is set to zeros when its first patch comes. */
#define lk__dx_of_points LK_ISA(lk__dx_of_points)
void lk__dx_of_points(const lk_patches *patches, const float *points, lk_patch_range chunk, float *dx);

/* Transforms points to y and to what is saved for the gradient. bias may be NULL. */
#define lk__y_of_points LK_ISA(lk__y_of_points)
void lk__y_of_points(const lk_patches *patches, const float *points, lk_patch_range chunk, const float *bias, float *y,
                     uint8_t *saved);

/* Transforms dy to points; lk__row_of_dy takes some channels and gives only the six points of row `row`. */
#define lk__points_of_dy LK_ISA(lk__points_of_dy)
void lk__points_of_dy(const lk_patches *patches, const lk_lanes_grad *grad, lk_patch_range chunk, float *points);
#define lk__row_of_dy LK_ISA(lk__row_of_dy)
void lk__row_of_dy(const lk_patches *patches, const lk_lanes_grad *grad, lk_patch_range chunk,
                   lk_channel_range channels, int row, float *points);

/* Transforms `count` kernels of taps x taps to points, and points of their gradients back. */
#define lk__points_of_w LK_ISA(lk__points_of_w)
void lk__points_of_w(int64_t count, int taps, const float *w, float *points);
#define lk__dw_of_points LK_ISA(lk__dw_of_points)
void lk__dw_of_points(int64_t count, int taps, const float *points, float *dw);
