/* y[i] = f(x[0][i], x[1][i], …) for each element. A thread takes packs of neighbors, 16 bytes of the wider dtype, and
 * has several packs in flight before it uses the first. A result depends on its own element alone, so the number of
 * elements that a thread takes does not affect it. */
#pragma once

#include "cuda/plugin/gpu.cuh"

/* The elements that one access moves. */
template <typename T, int WIDTH> struct alignas(WIDTH * sizeof(T)) elements {
    T at[WIDTH];
};

/* WIDTH is the number of elements that a thread takes at once from an array of X, or from arrays of X and Y. */
template <typename X, typename Y = X> struct widest {
    enum { WIDTH = 16 / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y)) };
};

template <typename T, int WIDTH> static inline bool is_aligned(const T *data)
{
    return (uintptr_t)data % (WIDTH * sizeof(T)) == 0;
}

template <typename X, int N> struct operands {
    const X *at[N];
};

/* The offsets of elements in arrays without gaps, all in one order. `walk` in gpu_walk.cuh has the same interface. */
struct in_order {
    /* Sets at[0] to the offset of pack i in y, at[n + 1] to that in x[n]. */
    template <int N> inline __device__ void find(int64_t i, int width, int64_t (&at)[N]) const
    {
        for (int n = 0; n < N; n++)
            at[n] = i * width;
    }

    /* Returns whether x[n] repeats one element for a whole pack. */
    inline __device__ bool repeats(int) const
    {
        return false;
    }
};

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* Packs that a thread takes of each of N operands. */
template <int N> struct batch_of {
    enum { PACKS = N == 1 ? 4 : N == 2 ? 2 : 1 };
};

template <int WIDTH, typename X>
static inline __device__ void load_elements(elements<X, WIDTH> *to, const X *from, bool repeated)
{
    if (!repeated) {
        *to = *in_one_access<const elements<X, WIDTH>>(from);
        return;
    }
    X one = *from;
    for (int e = 0; e < WIDTH; e++)
        to->at[e] = one;
}

template <int WIDTH, typename Y, typename X, int N, typename F>
static inline __device__ void store_elements(Y *y, const elements<X, WIDTH> (&x)[N], const F &f)
{
    elements<Y, WIDTH> out;
    UNROLLED
    for (int e = 0; e < WIDTH; e++) {
        X one[N];
        for (int n = 0; n < N; n++)
            one[n] = x[n].at[e];
        out.at[e] = f(one);
    }
    *in_one_access<elements<Y, WIDTH>>(y) = out;
}

/* Maps the packs first, first + step, … below `end`, at most a batch. In place of missing packs the first one is loaded
 * again, so that no load waits for a branch. */
template <int WIDTH, typename Y, typename X, int N, typename F, typename Offsets>
static inline __device__ void map_batch(Y *y, const operands<X, N> &x, int64_t first, int64_t step, int64_t end,
                                        const F &f, const Offsets &offsets)
{
    const int BATCH = batch_of<N>::PACKS;
    elements<X, WIDTH> in[BATCH][N];
    int64_t at[BATCH][N + 1];
    if (first >= end)
        return;
    UNROLLED
    for (int k = 0; k < BATCH; k++) {
        offsets.find(first + k * step < end ? first + k * step : first, WIDTH, at[k]);
        for (int n = 0; n < N; n++)
            load_elements<WIDTH>(&in[k][n], x.at[n] + at[k][n + 1], WIDTH > 1 && offsets.repeats(n));
    }
    UNROLLED
    for (int k = 0; k < BATCH; k++)
        if (first + k * step < end)
            store_elements<WIDTH>(y + at[k][0], in[k], f);
}

/* The first block also takes the elements behind the last whole pack, one by one. */
template <int WIDTH, typename Y, typename X, int N, typename F, typename Offsets>
static __global__ void map_elements(Y *y, operands<X, N> x, int64_t count, F f, Offsets offsets)
{
    int64_t self = (int64_t)blockIdx.x * THREADS + threadIdx.x, packs = count / WIDTH;
    map_batch<WIDTH>(y, x, self, (int64_t)gridDim.x * THREADS, packs, f, offsets);
    if (WIDTH > 1 && self < count % WIDTH)
        map_batch<1>(y, x, packs * WIDTH + self, 1, packs * WIDTH + self + 1, f, offsets);
}

/* Gives every thread a whole batch if that makes enough threads to fill the largest GPUs; otherwise more threads with
 * less work for each. */
static inline unsigned blocks_for_batches(int64_t packs, int batch)
{
    int64_t full = 8 * 132, single = (packs + THREADS - 1) / THREADS;
    int64_t whole = (single + batch - 1) / batch, blocks = single < full ? single : whole > full ? whole : full;
    return (unsigned)(blocks > 0 ? blocks : 1);
}

template <int WIDTH, typename Y, typename X, int N, typename F, typename Offsets>
static void map_offsets(lk_gpu_stream *stream, Y *y, const operands<X, N> &x, int64_t count, F f, Offsets offsets)
{
    LK_GPU_RUN((map_elements<WIDTH, Y, X, N, F, Offsets>), blocks_for_batches(count / WIDTH, batch_of<N>::PACKS),
               THREADS, stream, y, x, count, f, offsets);
}

/* Maps arrays that are in one order. f is Y f(const X (&)[N]). Takes elements one by one if an array is not aligned to
 * 16 bytes. */
template <typename Y, typename X, int N, typename F>
static void map(lk_gpu_stream *stream, Y *y, const operands<X, N> &x, int64_t count, F f)
{
    const int WIDTH = widest<X, Y>::WIDTH;
    bool aligned = is_aligned<Y, WIDTH>(y);
    for (int n = 0; n < N; n++)
        aligned = aligned && is_aligned<X, WIDTH>(x.at[n]);
    if (aligned)
        map_offsets<WIDTH>(stream, y, x, count, f, in_order());
    else
        map_offsets<1>(stream, y, x, count, f, in_order());
}
