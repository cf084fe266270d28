/* The gradient of a convolution's bias. */
#pragma once

#include "cpu/cpu_channels.h"

/* Computes dbias[c] = the sum of dy over channel c. scratch: lk__channel_memory_bytes(shape) bytes. */
void lk__cpu_bias_sums(const lk_channels *shape, const float *dy, float *dbias, float *scratch);
