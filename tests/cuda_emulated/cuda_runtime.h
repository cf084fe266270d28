/* As much of CUDA's runtime as the plug-in uses, on the processor: its sources are compiled as C++ against this header,
 * and what they launch is run thread by thread. So tests run kernels, and whatever leads to them, where there is no
 * GPU.
 *
 * A stream keeps what it is given and does nothing before somebody waits for it; then it does no more than that needs.
 * So whoever forgets to wait, or lets go of memory too early, finds it out each time, not now and then. */
#ifndef LK_CUDA_EMULATED_CUDA_RUNTIME_H
#define LK_CUDA_EMULATED_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
/* A block's threads run in one thread of the process, and blocks one after the other. */
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
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

/* --- launching ---------------------------------------------------------------------------------------------------- */

/* Gives the stream something to do. */
void emulated_push(cudaStream_t stream, std::function<void()> work);

/* The same, which the stream does not begin with before `may_run` says so, nor goes past it. */
void emulated_push_held(cudaStream_t stream, std::function<bool()> may_run, std::function<void()> work);

/* The first again; what it gives runs the stream up to there, unless something stands still before, and says whether it
 * has come there. */
std::function<bool()> emulated_push_reachable(cudaStream_t stream, std::function<void()> work);

/* Which of the machine's GPUs that is. */
int emulated_gpu(int device);

/* exchanges.cpp: streams of a device that NCCL is giving something to, and that have not come past it. What may wait
 * for the device's other streams requires that there are none of the first, or, is_idle, of either. */
void emulated_exchange_starts(int device, int change);
void emulated_exchange_is_under_way(int device, int change);
void emulated_require_no_exchange(int device, bool is_idle, const char *what);
int emulated_device_of(cudaStream_t stream);

/* Of a call that makes the device's context where there is none; and of one that says what for. */
void emulated_need_context(int device);
void emulated_context_is_used(int device);

/* Ends the process where the calling thread uses another GPU than the stream's. */
void emulated_require_device(cudaStream_t stream);

/* Runs `thread` once for each thread of each block; `together`: threads of a block may wait for each other. */
void emulated_run(dim3 grid, dim3 block, bool together, const std::function<void()> &thread);

/* Arguments are taken when a kernel is launched, as the real one does: whoever launches it may then forget them. */
template <typename... Parameters, typename... Arguments>
void emulated_launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, bool together, cudaStream_t stream,
                     Arguments... arguments)
{
    emulated_require_device(stream);
    emulated_push(stream, [=]() { emulated_run(grid, block, together, [=]() { kernel(arguments...); }); });
}

#define LK_GPU_RUN(kernel, grid, block, stream, ...) emulated_launch(kernel, grid, block, false, stream, __VA_ARGS__)
#define LK_GPU_RUN_TOGETHER(kernel, grid, block, stream, ...) \
    emulated_launch(kernel, grid, block, true, stream, __VA_ARGS__)

/* --- what kernels call -------------------------------------------------------------------------------------------- */

void __syncthreads(void);
void __syncwarp(unsigned mask = 0xffffffffu);

/* Where a warp's threads put what they exchange; every one of them must take part. */
void *emulated_exchange(const void *mine, size_t bytes, int from_lane);
int emulated_lane(void);

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

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

using std::fabs;
using std::isfinite;
using std::isnan;

#endif
