/* y[i] = f(x[0][i], x[1][i], …), element by element: a thread takes neighbours, 16 bytes of the wider dtype, and has
 * several such packs under way before it uses the first. What an element becomes depends on nothing but itself, so how
 * many a thread takes touches no result. */
#ifndef LK_CUDA_GPU_ELEMENTS_CUH
#define LK_CUDA_GPU_ELEMENTS_CUH

#include "cuda/gpu.cuh"

/* What one access moves. */
template <typename T, int WIDTH> struct alignas(WIDTH * sizeof(T)) elements {
    T at[WIDTH];
};

/* How many elements of a dtype, or of two side by side, a thread takes at once. */
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

/* Arrays without gaps, in one order. What else says where elements lie has the same members. */
struct in_order {
    /* Of pack i, in y and in each x. */
    template <int N> inline __device__ void find(int64_t i, int width, int64_t (&at)[N]) const
    {
        for (int n = 0; n < N; n++)
            at[n] = i * width;
    }

    /* Whether x[n] has one element for all of a pack. */
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
        *to = *(const elements<X, WIDTH> *)from;
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
    *(elements<Y, WIDTH> *)y = out;
}

/* Packs first, first + step, … below `end`, of which there are no more than a batch. In the place of those that are not
 * there the first one is read again, so that no load waits for a branch. */
template <int WIDTH, typename Y, typename X, int N, typename F, typename Places>
static inline __device__ void map_batch(Y *y, const operands<X, N> &x, int64_t first, int64_t step, int64_t end,
                                        const F &f, const Places &places)
{
    const int BATCH = batch_of<N>::PACKS;
    elements<X, WIDTH> in[BATCH][N];
    int64_t at[BATCH][N + 1];
    if (first >= end)
        return;
    UNROLLED
    for (int k = 0; k < BATCH; k++) {
        places.find(first + k * step < end ? first + k * step : first, WIDTH, at[k]);
        for (int n = 0; n < N; n++)
            load_elements<WIDTH>(&in[k][n], x.at[n] + at[k][n + 1], WIDTH > 1 && places.repeats(n));
    }
    UNROLLED
    for (int k = 0; k < BATCH; k++)
        if (first + k * step < end)
            store_elements<WIDTH>(y + at[k][0], in[k], f);
}

/* What is left of the last pack goes to the first block, one by one. */
template <int WIDTH, typename Y, typename X, int N, typename F, typename Places>
static __global__ void map_elements(Y *y, operands<X, N> x, int64_t count, F f, Places places)
{
    int64_t self = (int64_t)blockIdx.x * THREADS + threadIdx.x, packs = count / WIDTH;
    map_batch<WIDTH>(y, x, self, (int64_t)gridDim.x * THREADS, packs, f, places);
    if (WIDTH > 1 && self < count % WIDTH)
        map_batch<1>(y, x, packs * WIDTH + self, 1, packs * WIDTH + self + 1, f, places);
}

/* Every thread has a batch where there is enough to do; otherwise there are more threads, with less for each, until
 * they fill the largest GPUs. */
static inline unsigned blocks_for_batches(int64_t packs, int batch)
{
    int64_t full = 8 * 132, single = (packs + THREADS - 1) / THREADS;
    int64_t whole = (single + batch - 1) / batch, blocks = single < full ? single : whole > full ? whole : full;
    return (unsigned)(blocks > 0 ? blocks : 1);
}

template <int WIDTH, typename Y, typename X, int N, typename F, typename Places>
static void map_places(lk_gpu_stream *stream, Y *y, const operands<X, N> &x, int64_t count, F f, Places places)
{
    LK_GPU_RUN((map_elements<WIDTH, Y, X, N, F, Places>), blocks_for_batches(count / WIDTH, batch_of<N>::PACKS),
               THREADS, stream->stream, y, x, count, f, places);
}

/* Of arrays in one order; one by one where they do not lie at multiples of 16 bytes. f: Y f(const X (&)[N]). */
template <typename Y, typename X, int N, typename F>
static void map(lk_gpu_stream *stream, Y *y, const operands<X, N> &x, int64_t count, F f)
{
    const int WIDTH = widest<X, Y>::WIDTH;
    bool aligned = is_aligned<Y, WIDTH>(y);
    for (int n = 0; n < N; n++)
        aligned = aligned && is_aligned<X, WIDTH>(x.at[n]);
    if (aligned)
        map_places<WIDTH>(stream, y, x, count, f, in_order());
    else
        map_places<1>(stream, y, x, count, f, in_order());
}

#endif
