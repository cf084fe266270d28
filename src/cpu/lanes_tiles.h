/* What the loops of lanes.h share: windows of a pooling, tiles of channels. */
#ifndef LK_CPU_LANES_TILES_H
#define LK_CPU_LANES_TILES_H

#include "cpu/avx2.h"
#include "cpu/lanes.h"

/* For bodies with the sizes of tiles as constants. */
#define LK_INLINE LK_AVX2 static inline __attribute__((always_inline))

/* Vectors of images a tile, and most channels: 2 x 6 accumulators hide the latency of fused multiply-adds and leave
 * room for the operands in 16 registers. */
enum { LK_LANES_PAIR = 2, LK_LANES_TILE = 6 };

typedef struct lk_lanes_range {
    int64_t begin, end;
} lk_lanes_range;

/* Inputs of an axis that window `o` covers. */
static inline lk_lanes_range lk__lanes_window(const lk_lanes_pool *pool, int axis, int64_t o)
{
    int64_t begin = o * pool->stride[axis] - pool->padding[axis], end = begin + pool->kernel[axis];
    return (lk_lanes_range){begin < 0 ? 0 : begin, end > pool->in[axis] ? pool->in[axis] : end};
}

/* Elements that the average of a window is over. */
static inline float lk__lanes_divisor(const lk_lanes_pool *pool, lk_lanes_range rows, lk_lanes_range columns)
{
    if (pool->count_padding)
        return (float)(pool->kernel[0] * pool->kernel[1]);
    return (float)((rows.end - rows.begin) * (columns.end - columns.begin));
}

static inline int64_t lk__lanes_blocks(int64_t images)
{
    return (images + LK_LANES - 1) / LK_LANES;
}

/* Channels in as few tiles as will do, of as equal sizes as will do. */
typedef struct lk_lanes_tiling {
    int64_t tiles, least, larger; /* the first `larger` have one channel more than `least` */
} lk_lanes_tiling;

static inline lk_lanes_tiling lk__lanes_tiling(int64_t channels)
{
    int64_t tiles = (channels + LK_LANES_TILE - 1) / LK_LANES_TILE;
    return (lk_lanes_tiling){tiles, channels / tiles, channels % tiles};
}

typedef struct lk_lanes_tile {
    int64_t first;
    int n;
} lk_lanes_tile;

static inline lk_lanes_tile lk__lanes_tile(const lk_lanes_tiling *tiling, int64_t t)
{
    int64_t larger = tiling->larger;
    return (lk_lanes_tile){t * tiling->least + (t < larger ? t : larger), (int)(tiling->least + (t < larger))};
}

/* A convolution of two blocks of images, beginning at `b`, in place of all. x, y and saved are those of all images. */
void lk__lanes_block_pair(const lk_lanes_block *block, int64_t b, const float *const x[LK_LANES_PAIR],
                          const float *packed, const float *bias, float *y, uint8_t *saved);

#endif
