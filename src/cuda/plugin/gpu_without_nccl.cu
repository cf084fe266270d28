/* Replaces gpu_nccl.cu in a build without NCCL. */
#include "cuda/plugin/gpu_plugin.h"

const lk_gpu_nccl *lk__gpu_nccl(void)
{
    return nullptr;
}
