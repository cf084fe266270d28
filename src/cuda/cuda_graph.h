/* Branches and graphs, as far as other files need them. The rest of their interface is lk_graphs in core/backend.h. */
#pragma once

#include "cuda/cuda_state.h"

/* lk_graphs.copy. */
lk_status lk__cuda_copy_all(lk_device *device, const lk_graph_copy *copies, int n, const uint64_t *step);

/* A call that starts several launches which need nothing of each other may spread them over LK_PARTS_AT_ONCE lanes, the
 * trunk and branches. Lanes wait for what the trunk got before they are forked, so other lanes than 0, the trunk, come
 * first. Only if the device is on its trunk. */
lk_status lk__cuda_fork(lk_cuda *cuda, int lane);
/* Must be called behind forks, also after a failure: later work waits for all lanes. */
lk_status lk__cuda_join(lk_cuda *cuda);

/* Frees the streams, events and memory of branches and graphs. The streams must be idle. */
void lk__cuda_graphs_close(lk_cuda *cuda);
