/* Frees what branches and graphs leave on a device. The rest of their interface is lk_graphs in core/backend.h. */
#pragma once

#include "cuda/cuda_state.h"

/* Frees the streams, events and memory of branches and graphs. The streams must be idle. */
void lk__cuda_graphs_close(lk_cuda *cuda);
