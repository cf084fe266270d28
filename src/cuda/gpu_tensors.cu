/* Kernels for elements of any dtype that lie anywhere: filling, conversion, gathering, arithmetic with broadcasting. */
#include "cuda/gpu.cuh"

#include <cstdint>

/* --- where elements lie ------------------------------------------------------------------------------------------- */

/* A shape with up to three operands, in which neighbouring axes that all step through evenly have become one. */
typedef struct walk {
    int ndim, operands;
    int64_t count, dim[LK_MAX_DIMS], stride[3][LK_MAX_DIMS];
} walk;

static bool are_one_axis(const walk *w, const lk_gpu_view *const *views, int axis, int64_t size)
{
    for (int o = 0; o < w->operands; o++)
        if (w->stride[o][w->ndim - 1] != views[o]->stride[axis] * size)
            return false;
    return true;
}

static walk walk_over(int ndim, const int64_t *dim, const lk_gpu_view *const *views, int operands)
{
    walk w = {};
    w.operands = operands;
    w.count = 1;
    for (int axis = 0; axis < ndim; axis++) {
        w.count *= dim[axis];
        if (dim[axis] == 1)
            continue;
        bool joins = w.ndim > 0 && are_one_axis(&w, views, axis, dim[axis]);
        if (!joins)
            w.dim[w.ndim++] = 1;
        w.dim[w.ndim - 1] *= dim[axis];
        for (int o = 0; o < operands; o++)
            w.stride[o][w.ndim - 1] = views[o]->stride[axis];
    }
    return w;
}

/* Of element i in row-major order. */
static inline __device__ void offsets(const walk &w, int64_t i, int64_t *at)
{
    for (int o = 0; o < w.operands; o++)
        at[o] = 0;
    for (int axis = w.ndim - 1; axis > 0; axis--) {
        int64_t index = i % w.dim[axis];
        i /= w.dim[axis];
        for (int o = 0; o < w.operands; o++)
            at[o] += index * w.stride[o][axis];
    }
    for (int o = 0; o < w.operands; o++) /* no division where there is one axis */
        at[o] += i * w.stride[o][0];
}

/* --- conversion --------------------------------------------------------------------------------------------------- */

/* Truncated and saturated, NaN as 0. */
template <typename I> static inline __device__ I saturated(double x, double least, double beyond)
{
    if (isnan(x))
        return 0;
    if (x >= beyond)
        return (I)(beyond == 0x1p63 ? INT64_MAX : (int64_t)beyond - 1);
    return x <= least ? (I)(int64_t)least : (I)x;
}

template <typename To, typename From> struct conversion {
    static inline __device__ To of(From x)
    {
        return (To)x;
    }
};
template <typename From> struct conversion<bf16, From> {
    static inline __device__ bf16 of(From x)
    {
        return __float2bfloat16_rn((float)x);
    }
};
template <typename To> struct conversion<To, bf16> {
    static inline __device__ To of(bf16 x)
    {
        return conversion<To, float>::of(__bfloat162float(x));
    }
};
template <> struct conversion<bf16, bf16> {
    static inline __device__ bf16 of(bf16 x)
    {
        return x;
    }
};
template <> struct conversion<bf16, double> {
    static inline __device__ bf16 of(double x)
    {
        return __float2bfloat16_rn(rounded_to_odd(x));
    }
};
template <> struct conversion<bf16, int64_t> {
    static inline __device__ bf16 of(int64_t x)
    {
        return conversion<bf16, double>::of((double)x);
    }
};
template <> struct conversion<bf16, int32_t> {
    static inline __device__ bf16 of(int32_t x)
    {
        return conversion<bf16, double>::of((double)x);
    }
};
#define SATURATED(I, least, beyond)                        \
    template <> struct conversion<I, double> {             \
        static inline __device__ I of(double x)            \
        {                                                  \
            return saturated<I>(x, least, beyond);         \
        }                                                  \
    };                                                     \
    template <> struct conversion<I, float> {              \
        static inline __device__ I of(float x)             \
        {                                                  \
            return saturated<I>((double)x, least, beyond); \
        }                                                  \
    }
SATURATED(int32_t, -0x1p31, 0x1p31);
SATURATED(int64_t, -0x1p63, 0x1p63);
SATURATED(uint8_t, 0, 256);

template <typename To, typename From> static __global__ void convert(To *y, const From *x, walk w)
{
    EACH(i, w.count)
    {
        int64_t at[2];
        offsets(w, i, at);
        y[at[0]] = conversion<To, From>::of(x[at[1]]);
    }
}

template <typename To> static lk_gpu_status convert_to(lk_gpu_stream *stream, const lk_gpu_convert *a, const walk &w)
{
    FOR_DTYPES(a->x.dtype, LK_GPU_RUN((convert<To, T>), blocks_for(w.count), THREADS, stream->stream, (To *)a->y.data,
                                      (const T *)a->x.data, w))
    return lk__gpu_launched("convert");
}

lk_gpu_status lk__gpu_convert(lk_gpu_stream *stream, const lk_gpu_convert *a)
{
    const lk_gpu_view *views[] = {&a->y, &a->x};
    walk w = walk_over(a->ndim, a->dim, views, 2);
    if (w.count == 0)
        return LK_GPU_OK;
    FOR_DTYPES(a->y.dtype, return convert_to<T>(stream, a, w))
    return LK_GPU_OK;
}

/* --- gathering ---------------------------------------------------------------------------------------------------- */

/* T: any type of the elements' size. */
template <typename T> static __global__ void gather(lk_gpu_gather a)
{
    EACH(i, a.n * a.row)
    {
        int64_t index = a.indices[i / a.row];
        bool inside = index >= 0 && index < a.rows;
        ((T *)a.y)[i] = inside ? ((const T *)a.x)[index * a.row + i % a.row] : (T) ~(T)0;
    }
}

#define GATHER(type) LK_GPU_RUN(gather<type>, blocks_for(a->n * a->row), THREADS, stream->stream, *a)

lk_gpu_status lk__gpu_gather(lk_gpu_stream *stream, const lk_gpu_gather *a)
{
    if (a->n == 0 || a->row == 0)
        return LK_GPU_OK;
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

template <typename T> static __global__ void fill(T *y, int64_t count, double value)
{
    EACH(i, count)
    y[i] = conversion<T, double>::of(value);
}

lk_gpu_status lk__gpu_fill(lk_gpu_stream *stream, const lk_gpu_fill *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_DTYPES(a->dtype,
               LK_GPU_RUN(fill<T>, blocks_for(a->count), THREADS, stream->stream, (T *)a->y, a->count, a->value))
    return lk__gpu_launched("fill");
}

template <typename T> static __global__ void arange(T *y, int64_t count, double start, double step)
{
    EACH(i, count)
    y[i] = conversion<T, double>::of(start + step * (double)i);
}

lk_gpu_status lk__gpu_arange(lk_gpu_stream *stream, const lk_gpu_arange *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_DTYPES(a->dtype, LK_GPU_RUN(arange<T>, blocks_for(a->count), THREADS, stream->stream, (T *)a->y, a->count,
                                    a->start, a->step))
    return lk__gpu_launched("arange");
}

/* --- random numbers ----------------------------------------------------------------------------------------------- */

static inline __device__ double open_unit(uint32_t word)
{
    return (word + 0.5) * 0x1p-32;
}

/* A pair of words is a pair of normal numbers: cosine and sine of one angle. */
static inline __device__ double draw(const lk_gpu_random &a, const uint32_t *words, int64_t i)
{
    if (!a.normal)
        return a.a + (a.b - a.a) * open_unit(words[i % 4]);
    int pair = (int)(i % 4) & 2;
    double radius = sqrt(-2 * log(open_unit(words[pair])));
    double angle = 6.28318530717958647692 * open_unit(words[pair + 1]);
    return a.a + a.b * (radius * (i % 2 == 0 ? cos(angle) : sin(angle)));
}

template <typename T> static __global__ void random_numbers(lk_gpu_random a)
{
    EACH(i, a.count)
    {
        uint32_t words[4];
        philox(a.philox, (uint32_t)(i / 4), a.philox.counter[1], words);
        ((T *)a.y)[i] = conversion<T, double>::of(draw(a, words, i));
    }
}

lk_gpu_status lk__gpu_random(lk_gpu_stream *stream, const lk_gpu_random *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_DTYPES(a->dtype, LK_GPU_RUN(random_numbers<T>, blocks_for(a->count), THREADS, stream->stream, *a))
    return lk__gpu_launched("random");
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

template <typename T> struct arithmetic {
    typedef typename number<T>::wide wide;
    static inline __device__ T of(lk_gpu_binary_op op, T x, T y)
    {
        wide a = widen(x), b = widen(y);
        return narrow<T>(op == LK_GPU_ADD ? a + b : op == LK_GPU_SUB ? a - b : op == LK_GPU_MUL ? a * b : a / b);
    }
};

/* Wrapping is defined for unsigned numbers alone; products of small ones are promoted to int. */
template <typename I, typename U> static inline __device__ I integer_arithmetic(lk_gpu_binary_op op, I x, I y)
{
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    if (op != LK_GPU_DIV)
        return (I)(U)(op == LK_GPU_ADD ? a + b : op == LK_GPU_SUB ? a - b : a * b);
    if (y == 0)
        return 0;
    return (I)-1 < 0 && y == (I)-1 ? (I)(U)(0 - a) : (I)(x / y);
}
#define INTEGERS(I, U)                                               \
    template <> struct arithmetic<I> {                               \
        static inline __device__ I of(lk_gpu_binary_op op, I x, I y) \
        {                                                            \
            return integer_arithmetic<I, U>(op, x, y);               \
        }                                                            \
    }
INTEGERS(int32_t, uint32_t);
INTEGERS(int64_t, uint64_t);
INTEGERS(uint8_t, uint8_t);

template <typename T> static __global__ void binary(T *y, const T *a, const T *b, walk w, lk_gpu_binary_op op)
{
    EACH(i, w.count)
    {
        int64_t at[3];
        offsets(w, i, at);
        y[at[0]] = arithmetic<T>::of(op, a[at[1]], b[at[2]]);
    }
}

lk_gpu_status lk__gpu_binary(lk_gpu_stream *stream, const lk_gpu_binary *a)
{
    const lk_gpu_view *views[] = {&a->y, &a->a, &a->b};
    walk w = walk_over(a->ndim, a->dim, views, 3);
    if (w.count == 0)
        return LK_GPU_OK;
    FOR_DTYPES(a->y.dtype, LK_GPU_RUN(binary<T>, blocks_for(w.count), THREADS, stream->stream, (T *)a->y.data,
                                      (const T *)a->a.data, (const T *)a->b.data, w, a->op))
    return lk__gpu_launched("binary");
}
