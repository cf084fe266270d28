/* What the files of the plug-in share. Nothing here is known to the library. */
#ifndef LK_CUDA_GPU_PLUGIN_H
#define LK_CUDA_GPU_PLUGIN_H

#include "cuda/driver.h"

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_gpu_libraries lk_gpu_libraries; /* handles of cuBLASLt and cuDNN, and what was chosen of them */

struct lk_gpu_stream {
    int gpu;
    cudaStream_t stream;
    lk_gpu_stream *first;        /* that it was opened beside; NULL: none */
    lk_gpu_libraries *libraries; /* made when they are needed first; of `first`, if there is one */
    void *workspace;             /* of libraries, likewise; its own */
    lk_gpu_pauses pauses;
};

/* Keeps the text for `error`, and gives back the status. */
lk_gpu_status lk__gpu_fail(lk_gpu_status status, const char *format, ...);

/* LK_GPU_OK, or the status that an error of the runtime stands for, with a text that says what was being done. */
lk_gpu_status lk__gpu_check(cudaError_t error, const char *what);

/* lk_gpu_driver.error */
const char *lk__gpu_error_text(void);

/* Of a launch that has just been made. */
lk_gpu_status lk__gpu_launched(const char *kernel);

#define LK_GPU_TRY(expression)                \
    do {                                      \
        lk_gpu_status status_ = (expression); \
        if (status_ != LK_GPU_OK)             \
            return status_;                   \
    } while (0)

/* gpu_current.cu. What the calling thread makes and allocates from here on is made there. */
lk_gpu_status lk__gpu_use(int gpu);

/* gpu_first_use.cu: the stream's lk_gpu_pauses. */
void lk__gpu_pause(const lk_gpu_stream *stream, bool is_idle);
void lk__gpu_resume(const lk_gpu_stream *stream);

/* Makes the stream's libraries and workspace where they are not there; frees its own. */
lk_gpu_status lk__gpu_libraries_need(lk_gpu_stream *stream);
void lk__gpu_libraries_free(lk_gpu_stream *stream);

/* gpu_libraries.c. On the GPU of the calling thread, while exchanges pause. Bytes are of a workspace. */
lk_gpu_status lk__gpu_libraries_open(lk_gpu_libraries **libraries);
void lk__gpu_libraries_close(lk_gpu_libraries *libraries);
void lk__gpu_libraries_versions(lk_gpu_versions *versions);
int64_t lk__gpu_libraries_workspace(void);

/* lk_gpu_driver.choose, .choices */
lk_gpu_status lk__gpu_choose(lk_gpu_stream *stream, lk_gpu_choice *choice);
void lk__gpu_choices(lk_gpu_stream *stream, void (*visit)(void *user, const lk_gpu_choice *choice), void *user);

/* gpu_topology.cu. Of GPUs by their places on the bus: "0000:3b:00.0". */
lk_gpu_path lk__gpu_path(const char *bus, const char *other);

/* gpu_nccl.cu, or gpu_without_nccl.cu. */
const lk_gpu_nccl *lk__gpu_nccl(void);

/* kernels.def, under the names lk__gpu_<name>. */
#define LK_GPU_KERNEL(name) lk_gpu_status lk__gpu_##name(lk_gpu_stream *stream, const lk_gpu_##name *arguments);
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL

#ifdef __cplusplus
}
#endif

#endif
