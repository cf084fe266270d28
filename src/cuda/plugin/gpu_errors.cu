/* Translates the runtime's errors to a status and a message that says what to do. */
#include "cuda/plugin/gpu_plugin.h"

#include <cstdarg>
#include <cstdio>

static thread_local char message[512];

const char *lk__gpu_error_text(void)
{
    return message;
}

lk_gpu_status lk__gpu_fail(lk_gpu_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

#define NOTHING_RUNS                                                                                             \
    "the GPU was lost to this process by work that was started earlier; the driver's report is in the kernel's " \
    "log (dmesg | grep Xid)"

static const struct {
    cudaError_t error;
    lk_gpu_status status;
    const char *advice;
} meanings[] = {
    {cudaErrorMemoryAllocation, LK_GPU_NO_MEMORY, "take a smaller --batch-size or more --shards"},
    {cudaErrorInsufficientDriver, LK_GPU_FAILED,
     "the driver is older than the CUDA that this was built with; install a newer driver"},
    {cudaErrorSystemDriverMismatch, LK_GPU_FAILED,
     "the driver's libraries and its kernel module are of different versions; restart the machine"},
    {cudaErrorSystemNotReady, LK_GPU_FAILED,
     "the driver has not started all it needs; is nvidia-fabricmanager running?"},
    {cudaErrorNoDevice, LK_GPU_FAILED, "see nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides it"},
    {cudaErrorDevicesUnavailable, LK_GPU_FAILED,
     "another process has the GPU to itself (exclusive mode); wait for it, or allow several: nvidia-smi -c DEFAULT"},
    {cudaErrorNoKernelImageForDevice, LK_GPU_UNSUPPORTED,
     "this build has no code for the GPU; build with CMAKE_CUDA_ARCHITECTURES that name it"},
    {cudaErrorUnsupportedPtxVersion, LK_GPU_UNSUPPORTED,
     "the driver is too old for this build's code; install a newer one"},
    {cudaErrorNotSupported, LK_GPU_UNSUPPORTED, NULL},
    {cudaErrorECCUncorrectable, LK_GPU_LOST,
     "the GPU's memory has an error that ECC cannot correct, and results of this process are not to be trusted; see "
     "nvidia-smi -q -d ECC, and reset or replace it"},
    {cudaErrorNvlinkUncorrectable, LK_GPU_LOST, "a link between GPUs has failed; see nvidia-smi nvlink -e"},
    {cudaErrorIllegalAddress, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorLaunchTimeout, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorAssert, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorHardwareStackError, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorIllegalInstruction, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorMisalignedAddress, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorInvalidAddressSpace, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorInvalidPc, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorLaunchFailure, LK_GPU_LOST, NOTHING_RUNS},
    {cudaErrorUnknown, LK_GPU_LOST, NOTHING_RUNS},
};

/* CUDA reports a missing driver as one that is too old. */
static bool has_no_driver(void)
{
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version == 0;
}

lk_gpu_status lk__gpu_check(cudaError_t error, const char *what)
{
    lk_gpu_status status = LK_GPU_FAILED;
    const char *advice = NULL;
    if (error == cudaSuccess)
        return LK_GPU_OK;
    cudaGetLastError(); /* clears the error, which the next launch would report again */
    for (const auto &meaning : meanings) {
        if (meaning.error != error)
            continue;
        status = meaning.status;
        advice = meaning.advice;
    }
    if (error == cudaErrorInsufficientDriver && has_no_driver())
        advice = "there is no driver; install NVIDIA's, or pass it on to the container";
    return lk__gpu_fail(status, "CUDA: %s: %s (%s)%s%s", what, cudaGetErrorString(error), cudaGetErrorName(error),
                        advice ? ": " : "", advice ? advice : "");
}

lk_gpu_status lk__gpu_launched(const char *kernel)
{
    return lk__gpu_check(cudaGetLastError(), kernel);
}
