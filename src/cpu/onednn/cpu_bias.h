/* The gradient of a convolution's bias. */
#pragma once

#include "cpu/cpu_channels.h"

/* Computes dbias[c] = the sum of dy over channel c. dbias: row-major, f32 or bf16. scratch:
 * lk__channel_memory_bytes(shape). */
void lk__cpu_bias_sums(const lk_channels *shape, const void *dy, const lk_tensor *dbias, float *scratch);
