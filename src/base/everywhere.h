/* LK_EVERYWHERE marks inline functions that kernels of GPUs call too. */
#pragma once

#ifdef __CUDACC__
#define LK_EVERYWHERE __host__ __device__
#else
#define LK_EVERYWHERE
#endif
