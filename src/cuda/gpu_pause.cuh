/* Around what CUDA may wait with for all that was started on a GPU: see lk_gpu_pauses. */
#ifndef LK_CUDA_GPU_PAUSE_CUH
#define LK_CUDA_GPU_PAUSE_CUH

#include "cuda/gpu_plugin.h"

struct gpu_pause {
    const lk_gpu_stream *stream;

    gpu_pause(const lk_gpu_stream *stream_, bool is_idle) : stream(stream_)
    {
        lk__gpu_pause(stream, is_idle);
    }
    ~gpu_pause()
    {
        lk__gpu_resume(stream);
    }
    gpu_pause(const gpu_pause &) = delete;
};

#endif
