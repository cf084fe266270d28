/* Which GPU a thread uses. CUDA takes the first one for a thread that has chosen none, at nearly every call, and the
 * first time that makes a context there, which takes hundreds of MB of a GPU that the program may have no business
 * with. So each thread is given one that the program uses before anything is asked of CUDA. */
#ifndef LK_CUDA_GPU_CURRENT_CUH
#define LK_CUDA_GPU_CURRENT_CUH

#include "cuda/gpu_plugin.h"

/* A thread that has none gets this one: before what can be asked for whichever GPU the thread uses. */
void lk__gpu_need(int gpu);

/* For what any thread may do, that of another GPU too: it has its own GPU back afterwards, if it had one. */
struct gpu_scope {
    int before;

    explicit gpu_scope(int gpu);
    ~gpu_scope();
    gpu_scope(const gpu_scope &) = delete;
};

#endif
