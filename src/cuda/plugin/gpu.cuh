/* Shared by all kernels. A kernel has one thread for each element, or a block of threads for a sum in a fixed order; no
 * result depends on how the GPU schedules them. The plug-in is compiled without contraction to fused multiply-adds. */
#pragma once

#include "base/philox.h"
#include "cuda/plugin/gpu_plugin.h"

#include <atomic>
#include <cuda_bf16.h>

/* Loads a kernel before its first launch on a GPU. */
template <auto kernel> static inline void need_kernel(const lk_gpu_stream *stream)
{
    static std::atomic<uint64_t> loaded; /* bit i: on GPU i */
    uint64_t bit = stream->gpu < 64 ? (uint64_t)1 << stream->gpu : 0;
    if (loaded.load(std::memory_order_relaxed) & bit)
        return;
    lk__gpu_load_kernel(stream, (const void *)kernel);
    loaded.fetch_or(bit, std::memory_order_relaxed);
}

/* Launch a kernel on an lk_gpu_stream: one whose threads are independent, and one in which the threads of a block wait
 * for each other. The emulation in tests/cuda_emulated queues kernels itself. */
#ifndef LK_GPU_LAUNCH
#define LK_GPU_LAUNCH(kernel, grid, block, together, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif
#define LK_GPU_RUN(kernel, grid, block, on, ...) \
    (need_kernel<(kernel)>(on), LK_GPU_LAUNCH(kernel, grid, block, false, (on)->stream, __VA_ARGS__))
#define LK_GPU_RUN_TOGETHER(kernel, grid, block, on, ...) \
    (need_kernel<(kernel)>(on), LK_GPU_LAUNCH(kernel, grid, block, true, (on)->stream, __VA_ARGS__))

/* Stands before loops over arrays that must stay in registers: an index unknown at compile time moves an array to local
 * memory. */
#ifdef __CUDACC__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED
#endif

/* The T at an address. A thread reads or writes it in one access, so the address must be a multiple of T's alignment.
 */
template <typename T, typename X> static inline __device__ T *in_one_access(X *address)
{
#ifndef __CUDACC__
    emulated_require_aligned(address, alignof(T));
#endif
    return (T *)address;
}

typedef __nv_bfloat16 bf16;

static const int THREADS = 256;
static const int64_t MAX_BLOCKS = 1 << 16;

/* The number of blocks that gives each element a thread, up to MAX_BLOCKS. With fewer threads than elements each thread
 * takes several: see EACH. */
static inline unsigned blocks_for(int64_t count)
{
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return (unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
}

#define EACH(i, count)                                                                                       \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, all_ = (int64_t)gridDim.x * blockDim.x; \
         i < (count); i += all_)

/* The type in which a dtype is computed; widen and narrow convert to it and back. */
template <typename T> struct number {
    typedef T wide;
};
template <> struct number<bf16> {
    typedef float wide;
};

template <typename T> static inline __host__ __device__ typename number<T>::wide widen(T x)
{
    return x;
}
template <> inline __host__ __device__ float widen<bf16>(bf16 x)
{
    return __bfloat162float(x);
}

template <typename T> static inline __host__ __device__ T narrow(typename number<T>::wide x)
{
    return x;
}
template <> inline __host__ __device__ bf16 narrow<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* Converting a double to bf16 through f32 would round twice. Rounding an inexact f32 to odd makes the second rounding
 * come out right (Boldo, Melquiond: "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to
 * odd", IEEE Transactions on Computers 57(4), 2008). */
static inline __device__ float rounded_to_odd(double x)
{
    float nearest = (float)x;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    double error = x - (double)nearest;
    if (error == 0 || !isfinite(error) || (bits & 1))
        return nearest;
    bits += fabs(x) > fabs((double)nearest) ? 1 : -1;
    memcpy(&nearest, &bits, sizeof bits);
    return nearest;
}

template <typename T> static inline __device__ T narrow_double(double x)
{
    return (T)x;
}
template <> inline __device__ bf16 narrow_double<bf16>(double x)
{
    return __float2bfloat16_rn(rounded_to_odd(x));
}

/* --- the 32 threads of a warp ------------------------------------------------------------------------------------- */

static const unsigned WARP = 0xffffffffu;

/* Sums over a warp: lane j adds lane j ^ h for h = 16, 8, 4, 2, 1, after which every lane has the same bits. */
template <typename T> static inline __device__ T warp_sum(T x)
{
    for (int h = 16; h > 0; h /= 2)
        x += __shfl_xor_sync(WARP, x, h);
    return x;
}

/* The maximum over a warp, ignoring NaN. */
static inline __device__ float warp_max(float x)
{
    for (int h = 16; h > 0; h /= 2)
        x = fmaxf(x, __shfl_xor_sync(WARP, x, h));
    return x;
}

/* A kernel with a warp for each line has blocks of dim3(32, WARPS), and blocks_for_warps(lines) of them. */
static const int WARPS = 8;

static inline unsigned blocks_for_warps(int64_t lines)
{
    return (unsigned)((lines + WARPS - 1) / WARPS);
}

/* FOR_FLOATS and FOR_DTYPES run `launch`, a statement that uses the type T, with the element type of `dtype` as T. */
#define DTYPE_CASE(dtype, type, ...) \
    case dtype: {                    \
        typedef type T;              \
        __VA_ARGS__;                 \
        break;                       \
    }

#define FOR_FLOATS(dtype, launch)                                                          \
    switch (dtype) {                                                                       \
        DTYPE_CASE(LK_F32, float, launch)                                                  \
        DTYPE_CASE(LK_BF16, bf16, launch)                                                  \
    default:                                                                               \
        return lk__gpu_fail(LK_GPU_UNSUPPORTED, "%s: neither f32 nor bf16", __func__ + 8); \
    }

#define FOR_DTYPES(dtype, launch)                                                   \
    switch (dtype) {                                                                \
        DTYPE_CASE(LK_F32, float, launch)                                           \
        DTYPE_CASE(LK_BF16, bf16, launch)                                           \
        DTYPE_CASE(LK_F64, double, launch)                                          \
        DTYPE_CASE(LK_I32, int32_t, launch)                                         \
        DTYPE_CASE(LK_I64, int64_t, launch)                                         \
        DTYPE_CASE(LK_U8, uint8_t, launch)                                          \
    default:                                                                        \
        return lk__gpu_fail(LK_GPU_UNSUPPORTED, "%s: unknown dtype", __func__ + 8); \
    }

/* One block of the stream that begins at `start`, as lk_philox4x32 computes it. */
static inline __device__ void philox(const lk_gpu_philox &start, uint32_t block, uint32_t sample, uint32_t out[4])
{
    const uint32_t counter[] = {block, sample, start.counter[2], start.counter[3]};
    lk__philox(counter, start.key, out);
}
