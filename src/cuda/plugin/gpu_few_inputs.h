/* The weight gradients for which lk_gpu_has_few_inputs. cuDNN has no engine for them in bf16. */
#pragma once

#include "cuda/plugin/gpu_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

lk_gpu_status lk__gpu_few_inputs_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *arguments);

#ifdef __cplusplus
}
#endif
