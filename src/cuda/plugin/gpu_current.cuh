/* The current GPU of each thread. At nearly every call CUDA uses the first GPU for a thread that has chosen none, and
 * makes a context there, which takes hundreds of MB of a GPU that the program may not want to use. So a thread is given
 * a GPU that the program uses before it calls CUDA. */
#pragma once

#include "cuda/plugin/gpu_plugin.h"

/* Makes the GPU current if the calling thread has none. For calls to which any current GPU will do. */
void lk__gpu_need(int gpu);

/* Makes a GPU current in a scope, and then the previous one again, if there was one. For functions that any thread may
 * call, also one that uses another GPU. */
struct gpu_scope {
    int before;

    explicit gpu_scope(int gpu);
    ~gpu_scope();
    gpu_scope(const gpu_scope &) = delete;
};
