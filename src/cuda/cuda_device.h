/* Streams with their events, and the fault that ends a wait for them. */
#pragma once

#include "cuda/cuda_state.h"

/* Records a fault: from now on every wait for the stream fails with it, whatever the stream has done. Keeps the first
 * one. Thread-safe. */
void lk__cuda_fail(lk_cuda *cuda, lk_status status, const char *message);
lk_status lk__cuda_check_fault(lk_cuda *cuda);

/* An event that is recorded behind entry `sequence` of the queue, or behind a later entry. */
lk_gpu_event *lk__cuda_event_of(lk_cuda *cuda, uint64_t sequence);

/* Makes an lk_cuda with a stream on `gpu` and its events, but without the buffers for copies. `device`: see
 * lk_cuda.device; it must live as long. */
lk_status lk__cuda_stream_new(const lk_gpu_driver *driver, int gpu, lk_cuda *device, lk_cuda **cuda);
void lk__cuda_stream_free(lk_cuda *cuda); /* a device's too. NULL is fine; the stream must be idle */
