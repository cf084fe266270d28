/* A scope in which CUDA may wait for all work on a GPU: see lk_gpu_pauses. */
#pragma once

#include "cuda/plugin/gpu_plugin.h"

struct gpu_pause {
    const lk_gpu_stream *stream;

    gpu_pause(const lk_gpu_stream *stream_, bool until_idle) : stream(stream_)
    {
        lk__gpu_pause(stream, until_idle);
    }
    ~gpu_pause()
    {
        lk__gpu_resume(stream);
    }
    gpu_pause(const gpu_pause &) = delete;
};
