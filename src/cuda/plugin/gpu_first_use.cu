/* Loads kernels and opens a stream's libraries at their first use. CUDA then waits for the work in flight on the GPU,
 * so exchanges pause. */
#include "cuda/plugin/gpu_pause.cuh"

void lk__gpu_pause(const lk_gpu_stream *stream, bool until_idle)
{
    if (stream->pauses.begin)
        stream->pauses.begin(stream->pauses.user, until_idle);
}

void lk__gpu_resume(const lk_gpu_stream *stream)
{
    if (stream->pauses.end)
        stream->pauses.end(stream->pauses.user);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* An error is left to the launch. */
void lk__gpu_load_kernel(const lk_gpu_stream *stream, const void *kernel)
{
    gpu_pause pause(stream, true);
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess)
        cudaGetLastError();
}

/* --- libraries ---------------------------------------------------------------------------------------------------- */

static lk_gpu_status open_libraries(lk_gpu_stream *stream, lk_gpu_stream *first)
{
    gpu_pause pause(stream, true);
    if (!first->libraries)
        LK_GPU_TRY(lk__gpu_libraries_open(&first->libraries));
    stream->libraries = first->libraries;
    if (stream->workspace)
        return LK_GPU_OK;
    return lk__gpu_check(cudaMalloc(&stream->workspace, (size_t)lk__gpu_libraries_workspace()),
                         "allocate the workspace of cuBLASLt and cuDNN");
}

lk_gpu_status lk__gpu_libraries_need(lk_gpu_stream *stream)
{
    LK_GPU_TRY(lk__gpu_use(stream->gpu));
    if (stream->libraries && stream->workspace)
        return LK_GPU_OK;
    return open_libraries(stream, stream->first ? stream->first : stream);
}

void lk__gpu_libraries_free(lk_gpu_stream *stream)
{
    if (!stream->libraries)
        return;
    gpu_pause pause(stream, true);
    if (!stream->first)
        lk__gpu_libraries_close(stream->libraries);
    cudaFree(stream->workspace);
}
