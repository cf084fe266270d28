/* Products of matrices without a library, for those for which cuBLASLt has no algorithm that adds in one sequence: one
 * thread for each element, sums in double in the order of `inner`. Slow compared with cuBLASLt. */
#pragma once

#include "cuda/plugin/gpu_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With bias and relu. */
lk_gpu_status lk__gpu_direct_matmul(lk_gpu_stream *stream, const lk_gpu_matmul *arguments);

#ifdef __cplusplus
}
#endif
