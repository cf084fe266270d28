/* Random streams as kernels take them. */
#pragma once

#include "cuda/cuda_state.h"

lk_gpu_philox lk__cuda_philox(const lk_random_key *key);

/* For operators with set_step: if the call is captured in a graph, each launch of the graph sets the key's epoch. */
lk_gpu_philox lk__cuda_philox_of_step(const lk_call *call, const lk_random_key *key);
