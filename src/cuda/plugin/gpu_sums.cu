/* Sums over shards: one array, or many arrays in one launch, which also converts and transposes. */
#include "cuda/plugin/gpu_conversion.cuh"
#include "cuda/plugin/gpu_elements.cuh"

/* The sum of N operands in registers. */
template <typename T, int N> struct pairs {
    static inline __device__ T sum(const T *x)
    {
        return pairs<T, N / 2>::sum(x) + pairs<T, N / 2>::sum(x + N / 2);
    }
};

template <typename T> struct pairs<T, 1> {
    static inline __device__ T sum(const T *x)
    {
        return *x;
    }
};

template <typename T, int N> struct pairwise {
    inline __device__ T operator()(const T (&x)[N]) const
    {
        return pairs<T, N>::sum(x);
    }
};

template <typename T, int N> static void run_pairwise_sum(lk_gpu_stream *stream, const lk_gpu_pairwise_sum *a)
{
    operands<T, N> x;
    for (int i = 0; i < N; i++)
        x.at[i] = (const T *)a->x[i];
    map(stream, (T *)a->y, x, a->count, pairwise<T, N>());
}

template <typename T> static lk_gpu_status sum_of(lk_gpu_stream *stream, const lk_gpu_pairwise_sum *a)
{
    switch (a->n) {
    case 2:
        run_pairwise_sum<T, 2>(stream, a);
        break;
    case 4:
        run_pairwise_sum<T, 4>(stream, a);
        break;
    case 8:
        run_pairwise_sum<T, 8>(stream, a);
        break;
    case 16:
        run_pairwise_sum<T, 16>(stream, a);
        break;
    default:
        return lk__gpu_fail(LK_GPU_UNSUPPORTED, "pairwise_sum: %d operands", a->n);
    }
    return lk__gpu_launched("pairwise_sum");
}

lk_gpu_status lk__gpu_pairwise_sum(lk_gpu_stream *stream, const lk_gpu_pairwise_sum *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    return a->dtype == LK_F64 ? sum_of<double>(stream, a) : sum_of<float>(stream, a);
}

/* --- many arrays -------------------------------------------------------------------------------------------------- */

/* A block has so many neighbors of an array, or a tile that it moves through shared memory: all of a short axis and
 * more of the other, or a square. A gap makes the length of a tile's rows odd, which avoids bank conflicts. */
enum { STRETCH = 4096, TILE = 1024, TILE_SIDE = 32, MAX_TILE = TILE + TILE / 2 };

typedef struct tiling {
    int tile_a, tile_b, tiles_a, tiles_b;
} tiling;

static inline __host__ __device__ tiling tiling_of(const lk_gpu_array_sum &s)
{
    tiling t = {};
    t.tile_a = s.a <= TILE_SIDE ? s.a : s.b > TILE_SIDE ? (int)TILE_SIDE : s.a < TILE / s.b ? s.a : TILE / s.b;
    t.tile_b = s.b < TILE / t.tile_a ? s.b : TILE / t.tile_a;
    t.tiles_a = (s.a + t.tile_a - 1) / t.tile_a;
    t.tiles_b = (s.b + t.tile_b - 1) / t.tile_b;
    return t;
}

static inline __host__ __device__ bool is_in_order(const lk_gpu_array_sum &s)
{
    return s.a == 1 || s.b == 1;
}

static int64_t blocks_of(const lk_gpu_array_sum &s)
{
    int64_t count = (int64_t)s.rows * s.a * s.b;
    if (count == 0 || is_in_order(s))
        return (count + STRETCH - 1) / STRETCH;
    tiling t = tiling_of(s);
    return (int64_t)s.rows * t.tiles_a * t.tiles_b;
}

/* The sum in X of the elements at `at`. */
template <typename X, int N> static inline __device__ X sum_at(const lk_gpu_array_sum &s, int64_t at)
{
    X x[N];
    UNROLLED
    for (int k = 0; k < N; k++)
        x[k] = ((const X *)s.x)[at + k * s.step];
    return pairs<X, N>::sum(x);
}

template <typename Y, typename X, int N, int WIDTH>
static inline __device__ void sum_stretch(const lk_gpu_array_sum &s, int64_t begin, int64_t end)
{
    for (int64_t i = begin + (int64_t)threadIdx.x * WIDTH; i < end; i += THREADS * WIDTH) {
        elements<X, WIDTH> x[N];
        elements<Y, WIDTH> y;
        UNROLLED
        for (int k = 0; k < N; k++)
            x[k] = *in_one_access<const elements<X, WIDTH>>((const X *)s.x + i + k * s.step);
        UNROLLED
        for (int e = 0; e < WIDTH; e++) {
            X one[N];
            for (int k = 0; k < N; k++)
                one[k] = x[k].at[e];
            y.at[e] = conversion<Y, X>::of(pairs<X, N>::sum(one));
        }
        *in_one_access<elements<Y, WIDTH>>((Y *)s.y + i) = y;
    }
}

template <typename Y, typename X, int N>
static inline __device__ void sum_in_order(const lk_gpu_array_sum &s, int64_t block)
{
    const int WIDTH = widest<X, Y>::WIDTH;
    int64_t count = (int64_t)s.rows * s.a * s.b, begin = block * STRETCH;
    int64_t end = count < begin + STRETCH ? count : begin + STRETCH, whole = end - end % WIDTH;
    bool aligned = (uintptr_t)s.x % (WIDTH * sizeof(X)) == 0 && (uintptr_t)s.y % (WIDTH * sizeof(Y)) == 0 &&
                   (N == 1 || s.step % WIDTH == 0);
    if (!aligned)
        whole = begin;
    sum_stretch<Y, X, N, WIDTH>(s, begin, whole);
    sum_stretch<Y, X, N, 1>(s, whole, end);
}

template <typename Y, typename X, int N>
static inline __device__ void sum_transposed(const lk_gpu_array_sum &s, int64_t block, Y *tile)
{
    tiling t = tiling_of(s);
    int64_t row = block / t.tiles_a / t.tiles_b, start = row * s.a * s.b;
    int first_a = (int)(block / t.tiles_b % t.tiles_a) * t.tile_a, first_b = (int)(block % t.tiles_b) * t.tile_b;
    int rows = s.a - first_a < t.tile_a ? s.a - first_a : t.tile_a, length = t.tile_b | 1;
    int columns = s.b - first_b < t.tile_b ? s.b - first_b : t.tile_b;
    for (int k = 0; k < TILE / THREADS; k++) {
        int i = k * THREADS + (int)threadIdx.x, a = i / columns, b = i % columns;
        if (a < rows)
            tile[a * length + b] =
                conversion<Y, X>::of(sum_at<X, N>(s, start + (int64_t)(first_a + a) * s.b + first_b + b));
    }
    __syncthreads();
    for (int k = 0; k < TILE / THREADS; k++) {
        int i = k * THREADS + (int)threadIdx.x, a = i % rows, b = i / rows;
        if (b < columns)
            ((Y *)s.y)[start + (int64_t)(first_b + b) * s.a + first_a + a] = tile[a * length + b];
    }
}

template <typename Y, typename X, int N>
static inline __device__ void sum_array(const lk_gpu_array_sum &s, int64_t block, float *tile)
{
    if (is_in_order(s))
        sum_in_order<Y, X, N>(s, block);
    else
        sum_transposed<Y, X, N>(s, block, (Y *)tile);
}

typedef struct array_sums {
    lk_gpu_array_sums all;
    unsigned first[LK_GPU_SUMS]; /* block of each */
} array_sums;

static __global__ void sum_arrays(const array_sums a)
{
    __shared__ float tile[MAX_TILE];
    int i = 0, end = a.all.n;
    while (end - i > 1) {
        int middle = (i + end) / 2;
        if (a.first[middle] <= blockIdx.x)
            i = middle;
        else
            end = middle;
    }
    const lk_gpu_array_sum &s = a.all.sum[i];
    int64_t block = blockIdx.x - a.first[i];
    bool is_bf16 = s.x_dtype == LK_BF16, to_bf16 = s.y_dtype == LK_BF16;
    if (s.x_dtype == LK_F64) {
        s.addends == 2   ? sum_in_order<double, double, 2>(s, block)
        : s.addends == 4 ? sum_in_order<double, double, 4>(s, block)
        : s.addends == 8 ? sum_in_order<double, double, 8>(s, block)
                         : sum_in_order<double, double, 16>(s, block);
    } else if (s.addends > 1) {
        s.addends == 2   ? sum_array<float, float, 2>(s, block, tile)
        : s.addends == 4 ? sum_array<float, float, 4>(s, block, tile)
        : s.addends == 8 ? sum_array<float, float, 8>(s, block, tile)
                         : sum_array<float, float, 16>(s, block, tile);
    } else if (to_bf16) {
        is_bf16 ? sum_array<bf16, bf16, 1>(s, block, tile) : sum_array<bf16, float, 1>(s, block, tile);
    } else {
        is_bf16 ? sum_array<float, bf16, 1>(s, block, tile) : sum_array<float, float, 1>(s, block, tile);
    }
}

lk_gpu_status lk__gpu_array_sums(lk_gpu_stream *stream, const lk_gpu_array_sums *a)
{
    array_sums placed = {};
    int64_t blocks = 0;
    placed.all.n = 0;
    for (int i = 0; i < a->n; i++) {
        int64_t its = blocks_of(a->sum[i]);
        if (its == 0)
            continue;
        placed.all.sum[placed.all.n] = a->sum[i];
        placed.first[placed.all.n++] = (unsigned)blocks;
        blocks += its;
    }
    if (blocks > 0)
        LK_GPU_RUN_TOGETHER(sum_arrays, (unsigned)blocks, THREADS, stream, placed);
    return lk__gpu_launched("array_sums");
}
