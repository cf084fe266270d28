/* Loads the plug-in at the first request for a GPU, once in a process. */
#pragma once

#include "base/status.h"
#include "cuda/driver.h"

/* The plug-in's table, from the file that $LOCKSTEP_CUDA_PLUGIN names, or else from liblockstep_cuda.so, which is
 * searched for as base/plugin.h says. NULL if it cannot be loaded; *reason, unless `reason` is NULL, is then set to a
 * static string that says why. */
const lk_gpu_driver *lk__cuda_driver(const char **reason);

/* Turns a status of the plug-in into one of the library, with the plug-in's message as the thread's error: LK_OK,
 * LK_ERR_MEMORY, LK_ERR_UNSUPPORTED, LK_ERR_DEVICE (the GPU is lost), LK_ERR_BACKEND. */
lk_status lk__cuda_check(const lk_gpu_driver *driver, lk_gpu_status status);
