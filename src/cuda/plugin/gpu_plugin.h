/* Shared by the files of the plug-in. The library does not include it. */
#pragma once

#include "cuda/driver.h"

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_gpu_libraries lk_gpu_libraries; /* handles of cuBLASLt and cuDNN, and their chosen algorithms */

struct lk_gpu_stream {
    int gpu;
    cudaStream_t stream;
    lk_gpu_stream *first;        /* the stream of which this one is a branch; NULL: none */
    lk_gpu_libraries *libraries; /* opened at the first use; a branch shares those of `first` */
    void *workspace;             /* for libraries; allocated at the first use, for each stream */
    lk_gpu_pauses pauses;
};

/* Sets the thread's message for lk_gpu_driver.error, and returns `status`. */
lk_gpu_status lk__gpu_fail(lk_gpu_status status, const char *format, ...);

/* Translates an error of the runtime. On failure the message says what was being done. */
lk_gpu_status lk__gpu_check(cudaError_t error, const char *what);

/* lk_gpu_driver.error */
const char *lk__gpu_error_text(void);

/* The status of the launch that was just made. */
lk_gpu_status lk__gpu_launched(const char *kernel);

#define LK_GPU_TRY(expression)                \
    do {                                      \
        lk_gpu_status status_ = (expression); \
        if (status_ != LK_GPU_OK)             \
            return status_;                   \
    } while (0)

/* gpu_current.cu: makes the GPU current for the calling thread. */
lk_gpu_status lk__gpu_use(int gpu);

/* gpu_first_use.cu: call the stream's lk_gpu_pauses, if it has any. */
void lk__gpu_pause(const lk_gpu_stream *stream, bool until_idle);
void lk__gpu_resume(const lk_gpu_stream *stream);

/* Loads a kernel on the stream's GPU. CUDA would do that at its first launch, and might wait for the GPU then. */
void lk__gpu_load_kernel(const lk_gpu_stream *stream, const void *kernel);

/* Open the stream's libraries and workspace if they are not open yet; free those that belong to the stream. */
lk_gpu_status lk__gpu_libraries_need(lk_gpu_stream *stream);
void lk__gpu_libraries_free(lk_gpu_stream *stream);

/* gpu_libraries.c: libraries on the current GPU, opened and closed while exchanges pause; their versions; and the bytes
 * of a stream's workspace. */
lk_gpu_status lk__gpu_libraries_open(lk_gpu_libraries **libraries);
void lk__gpu_libraries_close(lk_gpu_libraries *libraries);
void lk__gpu_libraries_versions(lk_gpu_versions *versions);
int64_t lk__gpu_libraries_workspace(void);

/* lk_gpu_driver.keep_plans */
void lk__gpu_keep_plans(const lk_gpu_plan_files *files);

/* lk_gpu_driver.choose, .engines, .choices */
lk_gpu_status lk__gpu_choose(lk_gpu_stream *stream, lk_gpu_choice *choice);
lk_gpu_status lk__gpu_engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names, int most, int *n);
void lk__gpu_choices(lk_gpu_stream *stream, void (*visit)(void *user, const lk_gpu_choice *choice), void *user);

/* gpu_topology.cu: the connection of two GPUs, given by their bus ids: "0000:3b:00.0". */
lk_gpu_path lk__gpu_path(const char *bus, const char *other);

/* gpu_nccl.cu or gpu_without_nccl.cu */
const lk_gpu_nccl *lk__gpu_nccl(void);

/* The kernels of kernels.def are called lk__gpu_<name>. */
#define LK_GPU_KERNEL(name) lk_gpu_status lk__gpu_##name(lk_gpu_stream *stream, const lk_gpu_##name *arguments);
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL

#ifdef __cplusplus
}
#endif
