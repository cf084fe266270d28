/* The streams behind a queue. */
#pragma once

#include "cuda/cuda_state.h"

/* The *n streams that run the queue of `device`: a GPU's one stream, or those of links. */
lk_cuda *const *lk__cuda_streams_of(lk_device *device, int *n);
