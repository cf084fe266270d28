#include "cuda/plugin/gpu_library_errors.h"

lk_gpu_status lk__gpu_check_blas(cublasStatus_t status, const char *what)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return LK_GPU_OK;
    case CUBLAS_STATUS_ALLOC_FAILED:
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "cuBLASLt: %s: out of memory", what);
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return lk__gpu_fail(LK_GPU_UNSUPPORTED, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
    default:
        return lk__gpu_fail(LK_GPU_FAILED, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
    }
}

lk_gpu_status lk__gpu_check_dnn(cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return LK_GPU_OK;
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "cuDNN: %s: out of memory", what);
    bool is_unsupported = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
    return lk__gpu_fail(is_unsupported ? LK_GPU_UNSUPPORTED : LK_GPU_FAILED, "cuDNN: %s: %s", what,
                        cudnnGetErrorString(status));
}
