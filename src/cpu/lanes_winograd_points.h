/* Between images in the lanes and Winograd's points, for lanes_winograd.c.
 *
 * Patches go by blocks of images, rows, columns. Points of activations are [point][patch][channel][lanes], of kernels
 * [point][out channel][in channel]. */
#ifndef LK_CPU_LANES_WINOGRAD_POINTS_H
#define LK_CPU_LANES_WINOGRAD_POINTS_H

#include "cpu/lanes.h"
#include "cpu/vector.h"
#include "cpu/winograd_transforms.h"

enum { LK_POINTS = LK_SIDE * LK_SIDE };

typedef struct lk_patches {
    const lk_lanes_block *block;
    int side;              /* a patch has side x side pixels of the result */
    int64_t used[2];       /* rows and columns of the result that the pooling reads */
    int64_t rows, columns; /* patches of an image */
    int64_t count;         /* of all images */
    int64_t strip, strips; /* a row of patches is cut into `strips` strips of at most `strip` patches */
} lk_patches;

/* Most patches of a strip: what neighbours have in common is computed once. */
enum { LK_STRIP = 4, LK_STRIP_COLUMNS = (LK_STRIP - 1) * 4 + LK_SIDE };

/* So many patches, from one on: whole strips. */
typedef struct lk_group {
    int64_t first, count;
} lk_group;

/* So many channels, from one on. */
typedef struct lk_channels {
    int64_t first, count;
} lk_channels;

/* From one point to the next, for `values` values: a line more, or points would share the cache's sets. */
static inline int64_t lk__patch_stride(int64_t values)
{
    return values + 16;
}

/* The same of kernels: sums of gradients are stored as whole vectors. */
static inline int64_t lk__kernel_stride(int64_t kernels)
{
    return lk__patch_stride((kernels + 8 + 15) / 16 * 16);
}

/* x to points of all channels, and only the six points of row `row`. */
#define lk__points_of_x LK_ISA(lk__points_of_x)
void lk__points_of_x(const lk_patches *patches, const float *x, lk_group group, float *points);
#define lk__row_of_x LK_ISA(lk__row_of_x)
void lk__row_of_x(const lk_patches *patches, const float *x, lk_group group, int row, float *points);

/* Points to dx, added to what is there; a block of images is filled with zeros when its first patch comes. */
#define lk__dx_of_points LK_ISA(lk__dx_of_points)
void lk__dx_of_points(const lk_patches *patches, const float *points, lk_group group, float *dx);

/* Points to y and what it saves. bias may be NULL. */
#define lk__y_of_points LK_ISA(lk__y_of_points)
void lk__y_of_points(const lk_patches *patches, const float *points, lk_group group, const float *bias, float *y,
                     uint8_t *saved);

/* dy, of some channels, to points, and only the six points of row `row`. */
#define lk__points_of_dy LK_ISA(lk__points_of_dy)
void lk__points_of_dy(const lk_patches *patches, const lk_lanes_grad *grad, lk_group group, float *points);
#define lk__row_of_dy LK_ISA(lk__row_of_dy)
void lk__row_of_dy(const lk_patches *patches, const lk_lanes_grad *grad, lk_group group, lk_channels channels, int row,
                   float *points);

/* Kernels to points and points of their gradients to these; count: kernels of taps x taps. */
#define lk__points_of_w LK_ISA(lk__points_of_w)
void lk__points_of_w(int64_t count, int taps, const float *w, float *points);
#define lk__dw_of_points LK_ISA(lk__dw_of_points)
void lk__dw_of_points(int64_t count, int taps, const float *points, float *dw);

#endif
