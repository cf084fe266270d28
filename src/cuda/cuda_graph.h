/* The end of a device's branches and graphs; core/backend.h has the rest of their interface. */
#pragma once

#include "cuda/cuda_state.h"

/* Frees the streams, events and memory of branches and graphs. The streams must be idle. */
void lk__cuda_graphs_close(lk_cuda *cuda);
