/* Loading the plug-in, once in a process, when somebody asks for a GPU for the first time. */
#ifndef LK_CUDA_CUDA_PLUGIN_H
#define LK_CUDA_CUDA_PLUGIN_H

#include "base/status.h"
#include "cuda/driver.h"

/* The plug-in's table. NULL where there is none: *reason, if not NULL, then says why, and is static. It is the file
 * that $LOCKSTEP_CUDA_PLUGIN names, else liblockstep_cuda.so where base/plugin.h says. */
const lk_gpu_driver *lk__cuda_driver(const char **reason);

/* LK_OK, or the thread's error with what the plug-in says: LK_ERR_MEMORY, LK_ERR_UNSUPPORTED, LK_ERR_DEVICE (the GPU is
 * lost), LK_ERR_BACKEND. */
lk_status lk__cuda_check(const lk_gpu_driver *driver, lk_gpu_status status);

#endif
