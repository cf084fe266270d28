/* Operands as cuBLASLt and cuDNN take them: at addresses that are multiples of LK_GPU_LIBRARY_ALIGNMENT, so that what
 * runs is a function of shapes, and of a dtype that may be another than the tensor's. */
#ifndef LK_CUDA_CUDA_LIBRARY_OPERANDS_H
#define LK_CUDA_CUDA_LIBRARY_OPERANDS_H

#include "cuda/cuda_state.h"

/* `bytes` bytes at `data`, where they are or in a temporary. NULL for NULL, and after a failure. */
const void *lk__cuda_aligned(lk_cuda_scratch *scratch, const void *data, size_t bytes);

/* x's elements in the order of `layout`, as `dtype`. NULL for x NULL, and after a failure. */
const void *lk__cuda_library_in(lk_cuda_scratch *scratch, const lk_tensor *x, const void *layout, lk_dtype dtype);

typedef struct lk_cuda_result {
    void *data;           /* where the library writes */
    lk_gpu_view from, to; /* what lk__cuda_library_written converts; from.data NULL: nothing */
} lk_cuda_result;

/* Where to write out[i] as `dtype` in the order of `layout`; the output itself will lie as `lies`, if it may. */
lk_cuda_result lk__cuda_library_out(lk_cuda_scratch *scratch, int i, const void *lies, const void *layout,
                                    lk_dtype dtype);

/* Once out[i] has been written; does nothing after a failure. */
void lk__cuda_library_written(lk_cuda_scratch *scratch, int i, const lk_cuda_result *result);

#endif
