/* An emulation on the CPU of the part of CUDA's runtime that the plug-in uses. The plug-in's sources are compiled as
 * C++ against this header, and their kernels run thread by thread. So tests can run the kernels, and all code that
 * leads to them, on a machine without a GPU.
 *
 * A stream queues its work and runs nothing before a thread waits for it, and then only what the wait needs. So a
 * missing wait, or memory that is freed too early, shows in every run, not only now and then. */
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
/* The threads of a block run in one thread of the process, and blocks run one after the other. */
#define __shared__ static thread_local

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

struct emulated_index {
    unsigned x, y, z;
};

extern thread_local emulated_index threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;
enum { warpSize = 32 };

#define CUDART_VERSION 13000

/* --- the runtime -------------------------------------------------------------------------------------------------- */

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorNvlinkUncorrectable = 220,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorSystemNotReady = 802,
    cudaErrorSystemDriverMismatch = 803,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorUnknown = 999,
} cudaError_t;

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_graph *cudaGraphExec_t;

typedef struct cudaUUID {
    char bytes[16];
} cudaUUID_t;

typedef struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    int major, minor, multiProcessorCount, pciDomainID, pciBusID, pciDeviceID;
    size_t totalGlobalMem;
} cudaDeviceProp;

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
} cudaMemcpyKind;
typedef enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
} cudaStreamCaptureMode;

typedef enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1
} cudaDriverEntryPointQueryResult;

enum {
    cudaEnableDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0
};

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult *result);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event); /* runs nothing */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaMalloc(void **data, size_t bytes);
cudaError_t cudaFree(void *data);
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *data);
cudaError_t cudaMemGetInfo(size_t *left, size_t *total);

typedef struct cudaFuncAttributes {
    size_t constSizeBytes;
} cudaFuncAttributes;
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel); /* loads the kernel */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

/* --- launching ---------------------------------------------------------------------------------------------------- */

/* Counts a kernel: see lk_gpu_emulated_launches. */
void emulated_count_launch(void);

/* cudaEventRecord on a stream of any GPU, for an exchange between several, which has one event. */
cudaError_t emulated_record(cudaEvent_t event, cudaStream_t stream);

/* Queues work on a stream. */
void emulated_push(cudaStream_t stream, std::function<void()> work);

/* The same, but the stream stops before the work until `may_run` returns true. */
void emulated_push_held(cudaStream_t stream, std::function<bool()> may_run, std::function<void()> work);

/* Queues work, and returns a function that runs the stream up to and including it. The function returns false if the
 * stream is stopped at held work before. */
std::function<bool()> emulated_push_reachable(cudaStream_t stream, std::function<void()> work);

/* The machine's number of a device. */
int emulated_gpu(int device);

/* exchanges.cpp counts the streams of a device on which NCCL is starting an exchange, and those with an exchange in
 * flight. emulated_require_no_exchange, which each call that may wait for all of a device's streams makes first, aborts
 * if another thread is starting an exchange or, with until_idle, if one is in flight. */
void emulated_exchange_starts(int device, int change);
void emulated_exchange_in_flight(int device, int change);
void emulated_require_no_exchange(int device, bool until_idle, const char *what);
int emulated_device_of(cudaStream_t stream);

/* contexts.cpp. Each call that needs the device's context calls emulated_need_context, which makes it if there is none.
 * emulated_context_is_used notes that the program wants the context. */
void emulated_need_context(int device);
void emulated_context_is_used(int device);

/* Aborts unless the stream's GPU is the calling thread's current one. */
void emulated_require_device(cudaStream_t stream);

/* Runs `thread` once for each thread of each block. `together`: the threads of a block may wait for each other. */
void emulated_run(dim3 grid, dim3 block, bool together, const std::function<void()> &thread);

/* Aborts if a GPU would refuse the launch, or if the kernel was not loaded before on the stream's device. */
void emulated_check_launch(const void *kernel, dim3 grid, dim3 block, size_t parameter_bytes, cudaStream_t stream);

/* Copies the arguments at the launch, as CUDA does, so that the caller need not keep them. */
template <typename... Parameters, typename... Arguments>
void emulated_launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, bool together, cudaStream_t stream,
                     Arguments... arguments)
{
    emulated_require_device(stream);
    emulated_check_launch((const void *)kernel, grid, block, (sizeof(Parameters) + ... + 0), stream);
    emulated_count_launch();
    emulated_push(stream, [=]() { emulated_run(grid, block, together, [=]() { kernel(arguments...); }); });
}

#define LK_GPU_LAUNCH(kernel, grid, block, together, stream, ...) \
    emulated_launch(kernel, grid, block, together, stream, __VA_ARGS__)

/* --- functions that kernels call ---------------------------------------------------------------------------------- */

void __syncthreads(void);
void __syncwarp(unsigned mask = 0xffffffffu);

/* The bytes that lane `from_lane` passes to the same call; every thread of the warp must call it. */
void *emulated_exchange(const void *mine, size_t bytes, int from_lane);
int emulated_lane(void);

/* Aborts if a GPU would refuse to access memory at an address that is no multiple of `alignment`. */
void emulated_require_aligned(const void *address, size_t alignment);

template <typename T> T __shfl_xor_sync(unsigned, T value, int other)
{
    T result;
    memcpy(&result, emulated_exchange(&value, sizeof value, emulated_lane() ^ other), sizeof result);
    return result;
}

template <typename T> T __shfl_down_sync(unsigned, T value, unsigned by)
{
    T result;
    int from = emulated_lane() + (int)by;
    memcpy(&result, emulated_exchange(&value, sizeof value, from < warpSize ? from : emulated_lane()), sizeof result);
    return result;
}

/* Threads of a block take turns. */
template <typename T> T atomicAdd(T *sum, T value)
{
    T before = *sum;
    *sum += value;
    return before;
}

template <typename T> T atomicMin(T *least, T value)
{
    T before = *least;
    *least = value < before ? value : before;
    return before;
}

template <typename T> T atomicMax(T *most, T value)
{
    T before = *most;
    *most = value > before ? value : before;
    return before;
}

using std::fabs;
using std::isfinite;
using std::isnan;
