/* Convolutions without a library, for shapes for which cuDNN has no engine: one thread for each result, sums in double
 * in a fixed order. f32 and bf16, any groups, strides and dilations. Slow compared with cuDNN. */
#pragma once

#include "cuda/plugin/gpu_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

lk_gpu_status lk__gpu_direct_conv(lk_gpu_stream *stream, const lk_gpu_conv *arguments);
lk_gpu_status lk__gpu_direct_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *arguments);
lk_gpu_status lk__gpu_direct_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *arguments);

#ifdef __cplusplus
}
#endif
