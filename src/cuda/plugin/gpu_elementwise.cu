/* Element-wise kernels. */
#include "cuda/plugin/gpu_elements.cuh"

/* --- relu --------------------------------------------------------------------------------------------------------- */

template <typename T> struct rectified {
    inline __device__ T operator()(const T (&x)[1]) const
    {
        return widen(x[0]) <= 0 ? narrow<T>(0) : x[0];
    }
};

lk_gpu_status lk__gpu_relu(lk_gpu_stream *stream, const lk_gpu_relu *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, map(stream, (T *)a->y, operands<T, 1>{{(const T *)a->x}}, a->count, rectified<T>()))
    return lk__gpu_launched("relu");
}

/* x is {dy, y}. */
template <typename T> struct rectified_gradient {
    inline __device__ T operator()(const T (&x)[2]) const
    {
        return widen(x[1]) > 0 ? x[0] : narrow<T>(0);
    }
};

lk_gpu_status lk__gpu_relu_grad(lk_gpu_stream *stream, const lk_gpu_relu_grad *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, map(stream, (T *)a->dx, operands<T, 2>{{(const T *)a->dy, (const T *)a->y}}, a->count,
                             rectified_gradient<T>()))
    return lk__gpu_launched("relu_grad");
}

/* --- activations: lk_activation_kind ------------------------------------------------------------------------------ */

enum { SIGMOID, TANH, LEAKY_RELU, ELU, SILU, GELU, SOFTPLUS };

static __device__ float logistic(float x)
{
    return 1 / (1 + expf(-x));
}

/* The normal distribution's cumulative distribution function, and its density. */
static __device__ float normal_cumulative(float x)
{
    return 0.5f * erfcf(-x * 0.70710678118654752440f);
}

static __device__ float normal_density(float x)
{
    return 0.39894228040143267794f * expf(-0.5f * x * x); /* 1 / sqrt(2 pi) */
}

static __device__ float activation_value(int kind, float alpha, float x)
{
    switch (kind) {
    case SIGMOID:
        return logistic(x);
    case TANH:
        return tanhf(x);
    case LEAKY_RELU:
        return x > 0 ? x : alpha * x;
    case ELU:
        return x > 0 ? x : alpha * expm1f(x);
    case SILU:
        return x * logistic(x);
    case GELU:
        return x * normal_cumulative(x);
    default:
        return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
    }
}

static __device__ float activation_slope(int kind, float alpha, float x, float y)
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
        return logistic(x) * (1 + x * (1 - logistic(x)));
    case GELU:
        return normal_cumulative(x) + x * normal_density(x);
    default:
        return logistic(x);
    }
}

template <typename T> struct activated {
    int kind;
    float alpha;

    inline __device__ T operator()(const T (&x)[1]) const
    {
        return narrow<T>(activation_value(kind, alpha, widen(x[0])));
    }
};

lk_gpu_status lk__gpu_activation(lk_gpu_stream *stream, const lk_gpu_activation *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, map(stream, (T *)a->y, operands<T, 1>{{(const T *)a->x}}, a->count,
                             activated<T>{a->kind, (float)a->alpha}))
    return lk__gpu_launched("activation");
}

/* The operands are {dy, x, y}. */
template <typename T> struct activated_gradient {
    int kind;
    float alpha;

    inline __device__ T operator()(const T (&x)[3]) const
    {
        return narrow<T>(widen(x[0]) * activation_slope(kind, alpha, widen(x[1]), widen(x[2])));
    }
};

lk_gpu_status lk__gpu_activation_grad(lk_gpu_stream *stream, const lk_gpu_activation_grad *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, map(stream, (T *)a->dx, operands<T, 3>{{(const T *)a->dy, (const T *)a->x, (const T *)a->y}},
                             a->count, activated_gradient<T>{a->kind, (float)a->alpha}))
    return lk__gpu_launched("activation_grad");
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

template <typename I>
static inline __device__ I index_in_image(const lk_gpu_dropout &a, I element, I channels, I pixels)
{
    return a.channels_last ? element % pixels * channels + element / pixels : element;
}

/* A thread takes the four elements for which one block of Philox has words; they have consecutive numbers. In
 * channels-last images whose number of pixels is a multiple of four, these are four pixels of one channel, and
 * neighboring threads take neighboring channels. I is the type of element counts: 32 bits if that is enough, because
 * divisions of 64 bits take longer than the memory accesses. */
template <typename T, typename I> static __global__ void dropout(lk_gpu_dropout a, uint64_t dropped, double scale)
{
    const int WORDS = 4;
    I channels = (I)a.channels, pixels = (I)a.pixels, size = channels * pixels;
    I blocks = (size + WORDS - 1) / WORDS, all = (I)a.images * blocks;
    bool across = a.channels_last && pixels % WORDS == 0;
    if (a.philox.epoch) {
        a.philox.counter[2] = (uint32_t)*a.philox.epoch;
        a.philox.counter[3] = (uint32_t)(*a.philox.epoch >> 32);
    }
    for (I i = (I)blockIdx.x * THREADS + threadIdx.x; i < all; i += (I)gridDim.x * THREADS) {
        I image = i / blocks, block = i % blocks;
        if (across)
            block = block % channels * (pixels / WORDS) + block / channels;
        I first = block * WORDS, start = image * size;
        T x[WORDS];
        I at[WORDS];
        uint32_t words[WORDS];
        if (across) {
            start += index_in_image(a, first, channels, pixels);
            for (int k = 0; k < WORDS; k++)
                at[k] = start + (I)k * channels;
        } else {
            for (int k = 0; k < WORDS; k++)
                at[k] = start + index_in_image(a, first + (I)k, channels, pixels);
        }
        for (int k = 0; k < WORDS; k++)
            if (first + (I)k < size)
                x[k] = ((const T *)a.x)[at[k]];
        uint64_t index = (uint64_t)a.indices[image];
        philox(a.philox, (uint32_t)block, (uint32_t)index, words);
        for (int k = 0; k < WORDS; k++)
            if (first + (I)k < size)
                ((T *)a.y)[at[k]] = index > UINT32_MAX ? narrow<T>(NAN)
                                    : words[k] < dropped
                                        ? narrow<T>(0)
                                        : narrow<T>((typename number<T>::wide)((double)widen(x[k]) * scale));
    }
}

template <typename T> static void run_dropout(lk_gpu_stream *stream, const lk_gpu_dropout *a, uint64_t dropped)
{
    int64_t count = a->images * a->channels * a->pixels;
    unsigned blocks = blocks_for(a->images * ((a->channels * a->pixels + 3) / 4));
    if (count < INT32_MAX / 4)
        LK_GPU_RUN((dropout<T, uint32_t>), blocks, THREADS, stream, *a, dropped, 1 / (1 - a->rate));
    else
        LK_GPU_RUN((dropout<T, int64_t>), blocks, THREADS, stream, *a, dropped, 1 / (1 - a->rate));
}

lk_gpu_status lk__gpu_dropout(lk_gpu_stream *stream, const lk_gpu_dropout *a)
{
    uint64_t dropped = (uint64_t)ceil(a->rate * 0x1p32); /* elements with a word below this are dropped */
    if (a->images * a->channels * a->pixels == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, run_dropout<T>(stream, a, dropped))
    return lk__gpu_launched("dropout");
}
