/* Sums over the rows of a matrix, in two kernels: blocks of threads add blocks of rows, and then the blocks are added.
 */
#pragma once

#include "cuda/plugin/gpu_pack.cuh"

/* The order of a sum over rows. In a block of rows lane l adds rows l, l + lanes, … in order, and a tree adds the
 * lanes. Then lane l of FINISH_LANES adds blocks l, l + FINISH_LANES, … in order, and again a tree adds the lanes. */
enum { FINISH_WIDTH = 4, FINISH_LANES = THREADS / FINISH_WIDTH };
enum { BLOCKS_A_LANE = LK_GPU_SUM_BLOCKS / FINISH_LANES };

/* Adds the lanes' sums pairwise; lane 0 gets the total. All threads of the block must take part. */
template <int N> static __device__ void add_lanes(double (&sums)[N], int lane, int lanes, int width)
{
    __shared__ double shared[N][THREADS];
    int self = (int)threadIdx.x, step = 1;
    for (int i = 0; i < N; i++)
        shared[i][self] = sums[i];
    while (step < lanes)
        step *= 2;
    for (step /= 2; step > 0; step /= 2) {
        __syncthreads();
        if (lane < step && lane + step < lanes)
            for (int i = 0; i < N; i++)
                shared[i][self] += shared[i][self + step * width];
    }
    for (int i = 0; i < N; i++)
        sums[i] = shared[i][self];
}

/* Adds a channel's sums over all blocks. True in the one thread that gets the total. */
template <int SUMS>
static __device__ bool add_blocks(const double *workspace, int64_t channels, int blocks, int64_t *channel,
                                  double (&sums)[SUMS])
{
    int lane = (int)threadIdx.x / FINISH_WIDTH;
    double from[BLOCKS_A_LANE][SUMS];
    *channel = (int64_t)blockIdx.x * FINISH_WIDTH + (int)threadIdx.x % FINISH_WIDTH;
    for (int k = 0; k < BLOCKS_A_LANE; k++) {
        int64_t block = lane + k * FINISH_LANES;
        for (int s = 0; s < SUMS; s++)
            from[k][s] =
                block < blocks && *channel < channels ? workspace[(block * SUMS + s) * channels + *channel] : 0;
    }
    for (int s = 0; s < SUMS; s++) {
        sums[s] = 0;
        for (int k = 0; k < BLOCKS_A_LANE; k++)
            sums[s] += from[k][s];
    }
    add_lanes(sums, lane, FINISH_LANES, FINISH_WIDTH);
    return lane == 0 && *channel < channels;
}

/* blockIdx.y is the part. */
static inline dim3 finish_blocks(int64_t channels, int64_t parts)
{
    return dim3((unsigned)((channels + FINISH_WIDTH - 1) / FINISH_WIDTH), (unsigned)lk_gpu_parts(parts));
}

template <typename T>
static __global__ void finish_column_sums(const double *workspace, T *sums, int64_t columns, int blocks,
                                          int64_t workspace_of_part)
{
    int64_t c;
    double sum[1];
    if (add_blocks(workspace + blockIdx.y * workspace_of_part, columns, blocks, &c, sum))
        sums[blockIdx.y * columns + c] = narrow_double<T>(sum[0]);
}
