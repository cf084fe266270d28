/* The gradient of a convolution's bias. */
#pragma once

#include "cpu/cpu_channels.h"

/* Computes dbias[c] = the sum of dy over channel c. dy: f32 or bf16. dbias: row-major, f32 or bf16. scratch:
 * lk__cpu_bias_bytes(shape, dtype). */
size_t lk__cpu_bias_bytes(const lk_channels *shape, lk_dtype dtype);
void lk__cpu_bias_sums(const lk_channels *shape, lk_dtype dtype, const void *dy, const lk_tensor *dbias,
                       float *scratch);
