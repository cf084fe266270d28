/* Kernels for every dtype: gather, fill, random numbers, and arithmetic with broadcasting. */
#include "cuda/plugin/gpu_any.cuh"
#include "cuda/plugin/gpu_walk.cuh"

/* --- gathering ---------------------------------------------------------------------------------------------------- */

struct alignas(16) sixteen_bytes {
    uint64_t half[2];
};

/* T is any type of the elements' size, or of several neighbors. An index that is out of range gives all ones. */
template <typename T> static __global__ void gather(lk_gpu_gather a)
{
    T ones;
    memset(&ones, 0xff, sizeof ones);
    EACH(i, a.n * a.row)
    {
        int64_t index = a.indices[i / a.row];
        bool inside = index >= 0 && index < a.rows;
        in_one_access<T>(a.y)[i] = inside ? in_one_access<const T>(a.x)[index * a.row + i % a.row] : ones;
    }
}

/* Returns whether rows are packs of 16 bytes. */
static bool has_packs(const lk_gpu_gather *a)
{
    uintptr_t ends = (uintptr_t)a->x | (uintptr_t)a->y | (uintptr_t)a->row * a->size;
    return ends % sizeof(sixteen_bytes) == 0;
}

#define GATHER(type) LK_GPU_RUN(gather<type>, blocks_for(a->n * a->row), THREADS, stream, *a)

lk_gpu_status lk__gpu_gather(lk_gpu_stream *stream, const lk_gpu_gather *a)
{
    if (a->n == 0 || a->row == 0)
        return LK_GPU_OK;
    if (has_packs(a)) {
        lk_gpu_gather packs = *a;
        packs.row = a->row * (int64_t)a->size / (int64_t)sizeof(sixteen_bytes);
        LK_GPU_RUN(gather<sixteen_bytes>, blocks_for(packs.n * packs.row), THREADS, stream, packs);
        return lk__gpu_launched("gather");
    }
    switch (a->size) {
    case 1:
        GATHER(uint8_t);
        break;
    case 2:
        GATHER(uint16_t);
        break;
    case 4:
        GATHER(uint32_t);
        break;
    default:
        GATHER(uint64_t);
    }
    return lk__gpu_launched("gather");
}

/* --- filling ------------------------------------------------------------------------------------------------------ */

/* Writes packs from the first multiple of 16 bytes on. The first block writes the elements before and behind them. */
template <typename T> static __global__ void fill(T *y, int64_t count, int64_t before, double value)
{
    const int WIDTH = widest<T>::WIDTH;
    int64_t packs = (count - before) / WIDTH, behind = before + packs * WIDTH;
    T one = conversion<T, double>::of(value);
    elements<T, WIDTH> pack;
    for (int e = 0; e < WIDTH; e++)
        pack.at[e] = one;
    EACH(i, packs)
    *in_one_access<elements<T, WIDTH>>(y + before + i * WIDTH) = pack;
    if (blockIdx.x == 0 && threadIdx.x < before)
        y[threadIdx.x] = one;
    if (blockIdx.x == 0 && threadIdx.x < count - behind)
        y[behind + threadIdx.x] = one;
}

template <typename T> static void run_fill(lk_gpu_stream *stream, const lk_gpu_fill *a)
{
    int64_t width = widest<T>::WIDTH;
    int64_t before = (int64_t)(16 - (uintptr_t)a->y % 16) % 16 / (int64_t)sizeof(T);
    LK_GPU_RUN(fill<T>, blocks_for((a->count + width - 1) / width), THREADS, stream, (T *)a->y, a->count,
               before < a->count ? before : a->count, a->value);
}

lk_gpu_status lk__gpu_fill(lk_gpu_stream *stream, const lk_gpu_fill *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_DTYPES(a->dtype, run_fill<T>(stream, a))
    return lk__gpu_launched("fill");
}

static __global__ void arange(lk_gpu_arange a)
{
    EACH(i, a.count)
    any_store(a.y, a.dtype, i, {true, a.start + a.step * (double)i, 0});
}

lk_gpu_status lk__gpu_arange(lk_gpu_stream *stream, const lk_gpu_arange *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    LK_GPU_RUN(arange, blocks_for(a->count), THREADS, stream, *a);
    return lk__gpu_launched("arange");
}

/* --- random numbers ----------------------------------------------------------------------------------------------- */

static inline __device__ double word_to_unit(uint32_t word)
{
    return (word + 0.5) * 0x1p-32;
}

/* Two words make two normal numbers, from the cosine and the sine of one angle. */
static inline __device__ double random_value(const lk_gpu_random &a, const uint32_t *words, int64_t i)
{
    if (!a.normal)
        return a.a + (a.b - a.a) * word_to_unit(words[i % 4]);
    int pair = (int)(i % 4) & 2;
    double radius = sqrt(-2 * log(word_to_unit(words[pair])));
    double angle = 6.28318530717958647692 * word_to_unit(words[pair + 1]);
    return a.a + a.b * (radius * (i % 2 == 0 ? cos(angle) : sin(angle)));
}

static __global__ void random_numbers(lk_gpu_random a)
{
    EACH(i, a.count)
    {
        uint32_t words[4];
        philox(a.philox, (uint32_t)(i / 4), a.philox.counter[1], words);
        any_store(a.y, a.dtype, i, {true, random_value(a, words, i), 0});
    }
}

lk_gpu_status lk__gpu_random(lk_gpu_stream *stream, const lk_gpu_random *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    LK_GPU_RUN(random_numbers, blocks_for(a->count), THREADS, stream, *a);
    return lk__gpu_launched("random");
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

template <typename T> struct combined {
    lk_gpu_binary_op op;

    inline __device__ T operator()(const T (&x)[2]) const
    {
        typename number<T>::wide a = widen(x[0]), b = widen(x[1]);
        return narrow<T>(op == LK_GPU_ADD ? a + b : op == LK_GPU_SUB ? a - b : op == LK_GPU_MUL ? a * b : a / b);
    }
};

template <typename T> static void run_binary(lk_gpu_stream *stream, const lk_gpu_binary *a, walk w)
{
    const lk_gpu_view *views[] = {&a->y, &a->a, &a->b};
    const int WIDTH = widest<T>::WIDTH;
    operands<T, 2> x = {{(const T *)a->a.data, (const T *)a->b.data}};
    T *y = (T *)a->y.data;
    if (is_one_array(w))
        map(stream, y, x, w.count, combined<T>{a->op});
    else if (in_packs(&w, views, WIDTH, sizeof(T)))
        map_offsets<WIDTH>(stream, y, x, w.count, combined<T>{a->op}, w);
    else
        map_offsets<1>(stream, y, x, w.count, combined<T>{a->op}, w);
}

/* Sums, differences and products wrap, which is defined for unsigned numbers alone; so does the one quotient that does
 * not fit. */
static inline __device__ int64_t combined_integers(lk_gpu_binary_op op, int64_t x, int64_t y)
{
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    if (op != LK_GPU_DIV)
        return (int64_t)(op == LK_GPU_ADD ? a + b : op == LK_GPU_SUB ? a - b : a * b);
    if (y == 0)
        return 0;
    return y == -1 ? (int64_t)(0 - a) : x / y;
}

static __global__ void binary_integers(lk_gpu_binary a, walk w)
{
    EACH(i, w.count)
    {
        int64_t at[3];
        w.find(i, 1, at);
        int64_t x = any_load(a.a.data, a.a.dtype, at[1]).integer, y = any_load(a.b.data, a.b.dtype, at[2]).integer;
        any_store(a.y.data, a.y.dtype, at[0], {false, 0, combined_integers(a.op, x, y)});
    }
}

lk_gpu_status lk__gpu_binary(lk_gpu_stream *stream, const lk_gpu_binary *a)
{
    const lk_gpu_view *views[] = {&a->y, &a->a, &a->b};
    walk w = walk_over(a->ndim, a->dim, views, 3);
    if (w.count == 0)
        return LK_GPU_OK;
    switch (a->y.dtype) {
    case LK_F32:
        run_binary<float>(stream, a, w);
        break;
    case LK_BF16:
        run_binary<bf16>(stream, a, w);
        break;
    case LK_F64:
        run_binary<double>(stream, a, w);
        break;
    default:
        LK_GPU_RUN(binary_integers, blocks_for(w.count), THREADS, stream, *a, w);
    }
    return lk__gpu_launched("binary");
}
