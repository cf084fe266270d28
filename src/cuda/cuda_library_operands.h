/* Prepares operands for cuBLASLt and cuDNN. Their addresses are multiples of LK_GPU_LIBRARY_ALIGNMENT, so that the
 * libraries' choice of a kernel depends on shapes alone, and their dtype may differ from the tensor's. */
#pragma once

#include "cuda/cuda_state.h"

/* `data` itself, or an aligned temporary with a copy of its `bytes` bytes. NULL for NULL, and after a failure. */
const void *lk__cuda_aligned(lk_cuda_scratch *scratch, const void *data, size_t bytes);

/* The elements of x in the order of `layout`, converted to `dtype`. NULL for x NULL, and after a failure. */
const void *lk__cuda_library_in(lk_cuda_scratch *scratch, const lk_tensor *x, const void *layout, lk_dtype dtype);

typedef struct lk_cuda_result {
    void *data;           /* the library writes to it */
    lk_gpu_view from, to; /* the conversion that lk__cuda_library_written does; from.data NULL: none */
} lk_cuda_result;

/* Memory for the library to write out[i] to, as `dtype` in the order of `layout`. The output itself gets the layout
 * `wanted`, if the call leaves its layout to the kernel. */
lk_cuda_result lk__cuda_library_out(lk_cuda_scratch *scratch, int i, const void *wanted, const void *layout,
                                    lk_dtype dtype);

/* Call it when the launch that writes out[i] has been made: converts the result to the output if they differ. Does
 * nothing after a failure. */
void lk__cuda_library_written(lk_cuda_scratch *scratch, int i, const lk_cuda_result *result);
