/* The current GPU of each thread. If a thread has chosen none, nearly every call of CUDA takes the first GPU and makes
 * a context there: hundreds of MB on a GPU that the program may not use. So each thread makes one of the program's GPUs
 * current before it calls CUDA. */
#pragma once

#include "cuda/plugin/gpu_plugin.h"

/* Makes the GPU current if the calling thread has none. For calls to which any current GPU will do. */
void lk__gpu_need(int gpu);

/* Makes a GPU current in a scope, and then the previous one again, if there was one. For functions that threads with
 * another current GPU may call. */
struct gpu_scope {
    int before;

    explicit gpu_scope(int gpu);
    ~gpu_scope();
    gpu_scope(const gpu_scope &) = delete;
};
