/* Errors of cuBLASLt and cuDNN. */
#pragma once

#include "cuda/plugin/gpu_plugin.h"

#include <cublasLt.h>
#include <cudnn_graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Translate a status of a library. On failure the error message says what was being done. */
lk_gpu_status lk__gpu_check_blas(cublasStatus_t status, const char *what);
lk_gpu_status lk__gpu_check_dnn(cudnnStatus_t status, const char *what);

#ifdef __cplusplus
}
#endif
