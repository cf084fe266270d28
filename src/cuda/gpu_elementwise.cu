/* Kernels with a thread for each element. */
#include "cuda/gpu.cuh"

/* --- relu --------------------------------------------------------------------------------------------------------- */

template <typename T> static __global__ void relu(const T *x, T *y, int64_t count)
{
    EACH(i, count)
    y[i] = widen(x[i]) <= 0 ? narrow<T>(0) : x[i];
}

lk_gpu_status lk__gpu_relu(lk_gpu_stream *stream, const lk_gpu_relu *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype,
               LK_GPU_RUN(relu<T>, blocks_for(a->count), THREADS, stream->stream, (const T *)a->x, (T *)a->y, a->count))
    return lk__gpu_launched("relu");
}

template <typename T> static __global__ void relu_grad(const T *dy, const T *y, T *dx, int64_t count)
{
    EACH(i, count)
    dx[i] = widen(y[i]) > 0 ? dy[i] : narrow<T>(0);
}

lk_gpu_status lk__gpu_relu_grad(lk_gpu_stream *stream, const lk_gpu_relu_grad *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, LK_GPU_RUN(relu_grad<T>, blocks_for(a->count), THREADS, stream->stream, (const T *)a->dy,
                                    (const T *)a->y, (T *)a->dx, a->count))
    return lk__gpu_launched("relu_grad");
}

/* --- activations: lk_activation_kind ------------------------------------------------------------------------------ */

enum { SIGMOID, TANH, LEAKY_RELU, ELU, SILU, GELU, SOFTPLUS };

static __device__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Of the normal distribution. */
static __device__ float cumulative(float x)
{
    return 0.5f * erfcf(-x * 0.70710678118654752440f);
}

static __device__ float density(float x)
{
    return 0.39894228040143267794f * expf(-0.5f * x * x); /* 1 / sqrt(2 pi) */
}

static __device__ float activate(int kind, float alpha, float x)
{
    switch (kind) {
    case SIGMOID:
        return sigmoid(x);
    case TANH:
        return tanhf(x);
    case LEAKY_RELU:
        return x > 0 ? x : alpha * x;
    case ELU:
        return x > 0 ? x : alpha * expm1f(x);
    case SILU:
        return x * sigmoid(x);
    case GELU:
        return x * cumulative(x);
    default:
        return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
    }
}

static __device__ float slope(int kind, float alpha, float x, float y)
{
    switch (kind) {
    case SIGMOID:
        return y * (1 - y);
    case TANH:
        return 1 - y * y;
    case LEAKY_RELU:
        return x > 0 ? 1 : alpha;
    case ELU:
        return x > 0 ? 1 : alpha * expf(x);
    case SILU:
        return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case GELU:
        return cumulative(x) + x * density(x);
    default:
        return sigmoid(x);
    }
}

template <typename T> static __global__ void activation(const T *x, T *y, int64_t count, int kind, float alpha)
{
    EACH(i, count)
    y[i] = narrow<T>(activate(kind, alpha, widen(x[i])));
}

lk_gpu_status lk__gpu_activation(lk_gpu_stream *stream, const lk_gpu_activation *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, LK_GPU_RUN(activation<T>, blocks_for(a->count), THREADS, stream->stream, (const T *)a->x,
                                    (T *)a->y, a->count, a->kind, (float)a->alpha))
    return lk__gpu_launched("activation");
}

template <typename T>
static __global__ void activation_grad(const T *dy, const T *x, const T *y, T *dx, int64_t count, int kind, float alpha)
{
    EACH(i, count)
    dx[i] = narrow<T>(widen(dy[i]) * slope(kind, alpha, widen(x[i]), widen(y[i])));
}

lk_gpu_status lk__gpu_activation_grad(lk_gpu_stream *stream, const lk_gpu_activation_grad *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, LK_GPU_RUN(activation_grad<T>, blocks_for(a->count), THREADS, stream->stream, (const T *)a->dy,
                                    (const T *)a->x, (const T *)a->y, (T *)a->dx, a->count, a->kind, (float)a->alpha))
    return lk__gpu_launched("activation_grad");
}

/* --- pairwise_sum ------------------------------------------------------------------------------------------------- */

/* Of N operands, in registers. */
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

/* WIDTH neighbouring elements a thread, in one access to each operand. */
template <typename T, int N, int WIDTH> static inline __device__ void sum_pack(const lk_gpu_pairwise_sum &a, int64_t i)
{
    struct alignas(WIDTH * sizeof(T)) elements {
        T at[WIDTH];
    };
    elements x[N], y;
    for (int k = 0; k < N; k++)
        x[k] = ((const elements *)a.x[k])[i];
    for (int e = 0; e < WIDTH; e++) {
        T terms[N];
        for (int k = 0; k < N; k++)
            terms[k] = x[k].at[e];
        y.at[e] = pairs<T, N>::sum(terms);
    }
    ((elements *)a.y)[i] = y;
}

template <typename T, int N, int WIDTH> static __global__ void pairwise_sum(lk_gpu_pairwise_sum a)
{
    EACH(i, a.count / WIDTH)
    sum_pack<T, N, WIDTH>(a, i);
    if (blockIdx.x == 0 && threadIdx.x < a.count % WIDTH)
        sum_pack<T, N, 1>(a, a.count / WIDTH * WIDTH + threadIdx.x);
}

template <typename T, int N> static void run_pairwise_sum(lk_gpu_stream *stream, const lk_gpu_pairwise_sum *a)
{
    const int width = 16 / sizeof(T);
    bool aligned = (uintptr_t)a->y % 16 == 0;
    for (int i = 0; i < N; i++)
        aligned = aligned && (uintptr_t)a->x[i] % 16 == 0;
    if (aligned)
        LK_GPU_RUN((pairwise_sum<T, N, width>), blocks_for((a->count + width - 1) / width), THREADS, stream->stream,
                   *a);
    else
        LK_GPU_RUN((pairwise_sum<T, N, 1>), blocks_for(a->count), THREADS, stream->stream, *a);
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

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* A thread an element: the block of Philox that has its word has three others' too, which is little beside the memory.
 */
template <typename T> static __global__ void dropout(lk_gpu_dropout a, uint64_t dropped, double scale)
{
    int64_t size = a.channels * a.pixels;
    if (a.philox.epoch) {
        a.philox.counter[2] = (uint32_t)*a.philox.epoch;
        a.philox.counter[3] = (uint32_t)(*a.philox.epoch >> 32);
    }
    EACH(i, a.images * size)
    {
        int64_t image = i / size, place = i % size;
        int64_t element = a.channels_last ? place % a.channels * a.pixels + place / a.channels : place;
        uint32_t words[4];
        philox(a.philox, (uint32_t)(element / 4), (uint32_t)a.indices[image], words);
        double x = (double)widen(((const T *)a.x)[i]);
        ((T *)a.y)[i] = words[element % 4] < dropped ? narrow<T>(0) : narrow<T>((typename number<T>::wide)(x * scale));
    }
}

lk_gpu_status lk__gpu_dropout(lk_gpu_stream *stream, const lk_gpu_dropout *a)
{
    int64_t count = a->images * a->channels * a->pixels;
    uint64_t dropped = (uint64_t)ceil(a->rate * 0x1p32); /* words: those below rate 2^32 */
    if (count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype,
               LK_GPU_RUN(dropout<T>, blocks_for(count), THREADS, stream->stream, *a, dropped, 1 / (1 - a->rate)))
    return lk__gpu_launched("dropout");
}
