/* Convolutions without a library, for shapes that cuDNN has no engine for: one thread a result, sums in double in a
 * fixed order. f32 and bf16, any groups, strides, dilations. Slow next to cuDNN. */
#ifndef LK_CUDA_GPU_DIRECT_CONV_H
#define LK_CUDA_GPU_DIRECT_CONV_H

#include "cuda/gpu_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

lk_gpu_status lk__gpu_direct_conv(lk_gpu_stream *stream, const lk_gpu_conv *arguments);
lk_gpu_status lk__gpu_direct_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *arguments);
lk_gpu_status lk__gpu_direct_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *arguments);

#ifdef __cplusplus
}
#endif

#endif
