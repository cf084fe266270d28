/* Calls that need nothing of each other are started as one launch: sums over shards, casts, and updates of running
 * statistics. Between lk_graphs.together(true) and (false) they are collected in lk_cuda. */
#pragma once

#include "cuda/cuda_state.h"

/* lk_graphs.kind and lk_graphs.together. */
int lk__cuda_kind(const lk_call *call);
lk_status lk__cuda_together(lk_device *device, bool on);

/* Adds launches to those that are collected, or starts them at once if none are. Operands must not be temporaries. */
lk_status lk__cuda_add_sum(lk_cuda *cuda, const lk_gpu_array_sum *sum);
lk_status lk__cuda_add_running(lk_cuda *cuda, const lk_gpu_running_layer *layer);

/* Sets rows, a and b for arrays of `shape` that are channels-last, or not: see lk_gpu_array_sum. False: they are too
 * large. */
bool lk__cuda_set_axes(lk_gpu_array_sum *sum, lk_shape shape, bool from_channels_last, bool to_channels_last);
