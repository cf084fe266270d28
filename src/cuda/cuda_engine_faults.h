/* Engines of cuDNN that are known to add in no fixed order without cuDNN noting so. */
#pragma once

#include "cuda/driver.h"

#include <stdbool.h>
#include <stddef.h>

/* Part of the key of a kept plan. To be raised with each change of the table below, so that plans that were chosen by
 * another table are made again. */
enum { LK_CUDA_ENGINE_FAULTS = 1 };

/* version: of cuDNN, as cudnnGetVersion gives it. capability: the GPU's, 86 for 8.6. */
static inline bool lk_cuda_engine_has_fault(lk_gpu_library_kernel kernel, int64_t engine, size_t version,
                                            int capability)
{
    static const struct fault {
        lk_gpu_library_kernel kernel;
        int64_t engine;
        size_t first, last; /* versions */
        int capability;
    } faults[] = {
        /* Two runs differ: https://github.com/pytorch/pytorch/issues/188288, found to be this engine in pull request
         * 188318, on these GPUs alone in 189207, and mended in cuDNN 9.24 in 189483. */
        {LK_GPU_CONV, 5, 92300, 92399, 86},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (faults[i].kernel == kernel && faults[i].engine == engine && faults[i].first <= version &&
            version <= faults[i].last && faults[i].capability == capability)
            return true;
    return false;
}
