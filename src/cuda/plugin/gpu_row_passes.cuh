/* Passes over a matrix [rows, channels] in parts, as batch normalization and sums over rows make them. Each pass reads
 * its arrays once, in packs of channels, and every thread has loads of BATCH rows in flight. */
#pragma once

#include "cuda/plugin/gpu_row_sums.cuh"

#include <type_traits>

/* --- the threads' shares of the work ------------------------------------------------------------------------------ */

/* FEW: where operands would take too many registers. The order of sums does not depend on either. */
enum { BATCH = 4, FEW = 2 };

/* The threads of a block cover a tile of `width` neighboring packs of channels, and `lanes` rows at once. */
enum { MAX_WIDTH = 32, MAX_WIDTH_SINGLE = 128, MAX_TILE_CHANNELS = 256 };

struct tiling {
    int64_t rows, channels; /* of a part */
    int64_t workspace;      /* of a part */
    unsigned parts;         /* blockIdx.z is the part */
    int tiles, width, lanes;
};

/* sums: those that the pass's workspace has room for. */
template <typename P> static tiling tiling_of(int64_t rows, int64_t channels, int64_t parts, int sums)
{
    int64_t columns = channels / P::COUNT, most = P::COUNT > 1 ? MAX_WIDTH : MAX_WIDTH_SINGLE;
    tiling t = {rows, channels, lk_gpu_sums_workspace(rows, channels, sums), (unsigned)lk_gpu_parts(parts), 0, 0, 0};
    t.tiles = (int)((columns + most - 1) / most);
    t.width = (int)((columns + t.tiles - 1) / t.tiles);
    t.lanes = THREADS / t.width;
    return t;
}

/* A thread's position in its tile. */
struct position {
    int64_t channel; /* of the pack's first element */
    int lane;
    bool inside; /* false: the tile has no pack or no lane for this thread */
};

template <typename P> static inline __device__ position position_in(const tiling &t)
{
    int column = (int)threadIdx.x % t.width, lane = (int)threadIdx.x / t.width;
    int64_t channel = ((int64_t)blockIdx.x * t.width + column) * P::COUNT;
    return {channel, lane, lane < t.lanes && channel < t.channels};
}

/* The first element of this block's part of x, whose parts have t.rows rows. NULL for NULL. */
template <typename T> static inline __device__ T *part_of(T *x, const tiling &t)
{
    return x ? x + blockIdx.z * t.rows * t.channels : x;
}

/* Loops over the rows first, first + lanes, … below `end`: in batches of MOST rows, whose first rows are `stride`
 * apart, then one row at a time. visit(n, offset, step) gets n rows, whose packs begin at `offset` and are `step`
 * apart.
 */
template <int N> using at_once = std::integral_constant<int, N>;

template <int MOST, typename Visit>
static inline __device__ void each_batch(const tiling &t, const position &at, int64_t first, int64_t end,
                                         int64_t stride, Visit visit)
{
    int64_t step = t.lanes * t.channels, row = at.inside ? first : end;
    for (; row + (MOST - 1) * t.lanes < end; row += stride)
        visit(at_once<MOST>(), row * t.channels + at.channel, step);
    for (; row < end; row += t.lanes)
        visit(at_once<1>(), row * t.channels + at.channel, step);
}

template <typename P, int N>
static inline __device__ void load_packs(P (&packs)[N], const typename P::element *x, int64_t offset, int64_t step)
{
    for (int k = 0; k < N; k++)
        packs[k] = load<P>(x + offset + k * step);
}

/* --- sums over rows ----------------------------------------------------------------------------------------------- */

struct row_blocks {
    int64_t rows; /* of each block except the last */
    int count;
};

static inline row_blocks row_blocks_of(const tiling &t)
{
    int64_t most = LK_GPU_SUM_BLOCKS / t.tiles > 0 ? LK_GPU_SUM_BLOCKS / t.tiles : 1;
    int64_t rows = (t.rows + most - 1) / most;
    rows = rows > LK_GPU_SUM_ROWS ? rows : (int64_t)LK_GPU_SUM_ROWS;
    rows = (rows + t.lanes - 1) / t.lanes * t.lanes;
    return {rows, (int)((t.rows + rows - 1) / rows)};
}

/* Writes sum s of a block to workspace[(block * SUMS + s) * channels + channel]. The lanes are added for one sum at a
 * time, whose shared memory is small. */
template <typename P, int SUMS>
static __device__ void store_block(double (&sums)[SUMS * P::COUNT], double *workspace, const tiling &t,
                                   const position &at)
{
    workspace += blockIdx.z * t.workspace;
    for (int s = 0; s < SUMS; s++) {
        double own[P::COUNT];
        for (int i = 0; i < P::COUNT; i++)
            own[i] = sums[s * P::COUNT + i];
        if (s > 0)
            __syncthreads(); /* all have read the totals of the sum before */
        add_lanes(own, at.lane, t.lanes, t.width);
        for (int i = 0; i < P::COUNT && at.lane == 0 && at.inside; i++)
            workspace[((int64_t)blockIdx.y * SUMS + s) * t.channels + at.channel + i] = own[i];
    }
}

/* Loops over the rows of this block of threads. */
template <int MOST = BATCH, typename Visit>
static inline __device__ void each_batch_of_block(const tiling &t, const position &at, int64_t rows_a_block,
                                                  Visit visit)
{
    int64_t begin = blockIdx.y * rows_a_block, end = begin + rows_a_block < t.rows ? begin + rows_a_block : t.rows;
    each_batch<MOST>(t, at, begin + at.lane, end, MOST * t.lanes, visit);
}

/* --- functions of each element ------------------------------------------------------------------------------------ */

/* The most blocks that share all rows: four for each multiprocessor of the largest GPUs. Affects only speed. */
enum { PASS_BLOCKS = 528 };

/* batch: the rows that a thread takes at once. */
static inline dim3 pass_grid(const tiling &t, int batch)
{
    int64_t all = (t.rows + batch * t.lanes - 1) / (batch * t.lanes), most = PASS_BLOCKS / t.tiles;
    return dim3(t.tiles, (unsigned)(all < most ? all : most > 0 ? most : 1), t.parts);
}

template <typename Visit>
static inline __device__ void each_batch_of_pass(const tiling &t, const position &at, Visit visit)
{
    int64_t batch = (int64_t)BATCH * t.lanes;
    each_batch<BATCH>(t, at, blockIdx.y * batch + at.lane, t.rows, gridDim.y * batch, visit);
}
