/* Implements driver.def by CUDA's runtime: GPUs, streams, events, memory and graphs. Entry `name` is gpu_<name> here.
 */
#include "cuda/plugin/gpu_current.cuh"
#include "cuda/plugin/gpu_pause.cuh"

/* The emulation has no NVTX. */
#if defined(__CUDACC__) && __has_include(<nvtx3/nvToolsExt.h>)
#define LK_GPU_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct lk_gpu_event {
    int gpu;
    cudaEvent_t event;
};

struct lk_gpu_graph {
    const lk_gpu_stream *stream; /* on which it was captured */
    cudaGraphExec_t executable;
    cudaEvent_t launched; /* recorded behind the last launch */
};

/* --- GPUs --------------------------------------------------------------------------------------------------------- */

static int gpu_count(void)
{
    int found = 0;
    return lk__gpu_check(cudaGetDeviceCount(&found), "look for GPUs") == LK_GPU_OK ? found : 0;
}

static uint32_t peers_of(int gpu)
{
    uint32_t peers = 0;
    for (int other = 0, n = gpu_count(); other < n && other < 32; other++) {
        int can = 0;
        if (other == gpu)
            continue;
        if (cudaDeviceCanAccessPeer(&can, gpu, other) != cudaSuccess)
            cudaGetLastError(); /* or the next launch would report it */
        else if (can)
            peers |= 1u << other;
    }
    return peers;
}

static lk_gpu_status gpu_describe(int gpu, lk_gpu_info *info)
{
    cudaDeviceProp properties;
    LK_GPU_TRY(lk__gpu_check(cudaGetDeviceProperties(&properties, gpu), "describe a GPU"));
    *info = lk_gpu_info{};
    snprintf(info->name, sizeof info->name, "%.63s", properties.name);
    snprintf(info->bus, sizeof info->bus, "%04x:%02x:%02x.0", properties.pciDomainID, properties.pciBusID,
             properties.pciDeviceID);
    memcpy(info->uuid, &properties.uuid, sizeof info->uuid);
    info->capability[0] = properties.major;
    info->capability[1] = properties.minor;
    info->multiprocessors = properties.multiProcessorCount;
    info->memory = (int64_t)properties.totalGlobalMem;
    info->peers = peers_of(gpu);
    info->workspace = lk__gpu_libraries_workspace();
    return LK_GPU_OK;
}

static lk_gpu_status gpu_path_between(int gpu, int other, lk_gpu_path *path)
{
    lk_gpu_info a, b;
    LK_GPU_TRY(gpu_describe(gpu, &a));
    LK_GPU_TRY(gpu_describe(other, &b));
    *path = lk__gpu_path(a.bus, b.bus);
    return LK_GPU_OK;
}

static void write_cuda_version(char *text, size_t size, int version)
{
    snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

static void gpu_versions(lk_gpu_versions *found)
{
    int number;
    *found = lk_gpu_versions{};
    if (cudaDriverGetVersion(&number) == cudaSuccess && number > 0)
        write_cuda_version(found->driver, sizeof found->driver, number);
    if (cudaRuntimeGetVersion(&number) == cudaSuccess)
        write_cuda_version(found->runtime, sizeof found->runtime, number);
    lk__gpu_libraries_versions(found);
    const lk_gpu_nccl *nccl = lk__gpu_nccl();
    if (nccl)
        snprintf(found->nccl, sizeof found->nccl, "%d.%d.%d", nccl->version / 10000, nccl->version / 100 % 100,
                 nccl->version % 100);
}

static void gpu_keep_plans(const lk_gpu_plan_files *files)
{
    lk__gpu_keep_plans(files);
}

/* --- streams and events ------------------------------------------------------------------------------------------- */

static void gpu_stream_close(lk_gpu_stream *stream)
{
    if (!stream)
        return;
    gpu_scope scope(stream->gpu);
    lk__gpu_libraries_free(stream);
    if (stream->stream)
        cudaStreamDestroy(stream->stream);
    free(stream);
}

static lk_gpu_status gpu_stream_open(int gpu, const lk_gpu_pauses *pauses, lk_gpu_stream **out)
{
    LK_GPU_TRY(lk__gpu_use(gpu));
    lk_gpu_stream *stream = (lk_gpu_stream *)calloc(1, sizeof *stream);
    if (!stream)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "CUDA: out of memory for a stream");
    stream->gpu = gpu;
    if (pauses)
        stream->pauses = *pauses;
    lk_gpu_status status =
        lk__gpu_check(cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking), "make a stream");
    if (status != LK_GPU_OK) {
        gpu_stream_close(stream);
        return status;
    }
    *out = stream;
    return LK_GPU_OK;
}

static lk_gpu_status gpu_stream_open_branch(lk_gpu_stream *first, lk_gpu_stream **stream)
{
    LK_GPU_TRY(gpu_stream_open(first->gpu, &first->pauses, stream));
    (*stream)->first = first;
    return LK_GPU_OK;
}

static lk_gpu_status gpu_stream_use(lk_gpu_stream *stream)
{
    return lk__gpu_use(stream->gpu);
}

static lk_gpu_status gpu_stream_wait(lk_gpu_stream *stream)
{
    lk__gpu_need(stream->gpu);
    return lk__gpu_check(cudaStreamSynchronize(stream->stream), "wait for a GPU");
}

static void gpu_event_free(lk_gpu_event *event)
{
    lk__gpu_need(event->gpu);
    cudaEventDestroy(event->event);
    free(event);
}

static lk_gpu_status new_event(lk_gpu_stream *stream, unsigned flags, lk_gpu_event **out)
{
    LK_GPU_TRY(lk__gpu_use(stream->gpu));
    lk_gpu_event *event = (lk_gpu_event *)calloc(1, sizeof *event);
    if (!event)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "CUDA: out of memory for an event");
    lk_gpu_status status = lk__gpu_check(cudaEventCreateWithFlags(&event->event, flags), "make an event");
    if (status != LK_GPU_OK) {
        free(event);
        return status;
    }
    event->gpu = stream->gpu;
    *out = event;
    return LK_GPU_OK;
}

static lk_gpu_status gpu_event_new(lk_gpu_stream *stream, lk_gpu_event **event)
{
    return new_event(stream, cudaEventDisableTiming, event);
}

static lk_gpu_status gpu_timer_new(lk_gpu_stream *stream, lk_gpu_event **event)
{
    return new_event(stream, cudaEventDefault, event);
}

static lk_gpu_status gpu_elapsed(lk_gpu_event *from, lk_gpu_event *to, float *milliseconds)
{
    lk__gpu_need(from->gpu);
    return lk__gpu_check(cudaEventElapsedTime(milliseconds, from->event, to->event), "tell the time between events");
}

static lk_gpu_status gpu_event_record(lk_gpu_stream *stream, lk_gpu_event *event)
{
    lk__gpu_need(stream->gpu);
    return lk__gpu_check(cudaEventRecord(event->event, stream->stream), "record an event");
}

static lk_gpu_status gpu_event_follow(lk_gpu_stream *stream, lk_gpu_event *event)
{
    lk__gpu_need(stream->gpu);
    return lk__gpu_check(cudaStreamWaitEvent(stream->stream, event->event, 0), "wait for another stream");
}

static lk_gpu_status gpu_event_wait(lk_gpu_event *event)
{
    lk__gpu_need(event->gpu);
    return lk__gpu_check(cudaEventSynchronize(event->event), "wait for a GPU");
}

static lk_gpu_status gpu_event_query(lk_gpu_event *event)
{
    lk__gpu_need(event->gpu);
    cudaError_t error = cudaEventQuery(event->event);
    if (error != cudaErrorNotReady)
        return lk__gpu_check(error, "look at an event");
    cudaGetLastError();
    return LK_GPU_BUSY;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* May be called while a graph is captured, when the pause must not wait for exchanges in flight. */
static lk_gpu_status gpu_alloc(lk_gpu_stream *stream, size_t bytes, void **data)
{
    cudaError_t error;
    LK_GPU_TRY(lk__gpu_use(stream->gpu));
    {
        gpu_pause pause(stream, false);
        error = cudaMalloc(data, bytes);
    }
    if (error != cudaErrorMemoryAllocation)
        return lk__gpu_check(error, "allocate memory");
    cudaGetLastError();
    size_t left = 0, total = 0;
    cudaMemGetInfo(&left, &total);
    return lk__gpu_fail(LK_GPU_NO_MEMORY, "out of memory on GPU %d: %zu bytes were asked for, %zu of %zu are left",
                        stream->gpu, bytes, left, total);
}

static void gpu_alloc_free(lk_gpu_stream *stream, void *data)
{
    gpu_scope scope(stream->gpu);
    gpu_pause pause(stream, true);
    cudaFree(data);
}

static lk_gpu_status gpu_pinned_alloc(lk_gpu_stream *stream, size_t bytes, void **data)
{
    LK_GPU_TRY(lk__gpu_use(stream->gpu));
    gpu_pause pause(stream, true);
    return lk__gpu_check(cudaHostAlloc(data, bytes, cudaHostAllocDefault), "allocate pinned memory");
}

static void gpu_pinned_free(lk_gpu_stream *stream, void *data)
{
    gpu_scope scope(stream->gpu);
    gpu_pause pause(stream, true);
    cudaFreeHost(data);
}

static lk_gpu_status gpu_memory_left(lk_gpu_stream *stream, int64_t *bytes)
{
    size_t left = 0, total = 0;
    LK_GPU_TRY(lk__gpu_use(stream->gpu));
    LK_GPU_TRY(lk__gpu_check(cudaMemGetInfo(&left, &total), "ask for free memory"));
    *bytes = (int64_t)left;
    return LK_GPU_OK;
}

static lk_gpu_status gpu_copy(lk_gpu_stream *stream, void *to, const void *from, size_t bytes,
                              lk_gpu_direction direction)
{
    lk__gpu_need(stream->gpu);
    cudaMemcpyKind kind = direction == LK_GPU_TO_HOST     ? cudaMemcpyDeviceToHost
                          : direction == LK_GPU_FROM_HOST ? cudaMemcpyHostToDevice
                                                          : cudaMemcpyDeviceToDevice;
    return lk__gpu_check(cudaMemcpyAsync(to, from, bytes, kind, stream->stream), "copy memory");
}

/* Enables direct access to another GPU's memory at the first copy from it, if the hardware can. Not done in advance for
 * all GPUs, because it maps the memory of both, also of GPUs that the program does not use. An error is ignored: access
 * may be enabled already. */
static void reach_peer(const lk_gpu_stream *stream, int other)
{
    static std::atomic<uint32_t> asked[32];
    int gpu = stream->gpu;
    uint32_t bit = 1u << (other % 32);
    if (gpu >= 32 || other >= 32 || (asked[gpu].fetch_or(bit) & bit))
        return;
    gpu_scope scope(gpu); /* cudaDeviceEnablePeerAccess gives access to the current GPU */
    gpu_pause pause(stream, true);
    if (peers_of(gpu) & bit && cudaDeviceEnablePeerAccess(other, 0) != cudaSuccess)
        cudaGetLastError();
}

static lk_gpu_status gpu_copy_peer(lk_gpu_stream *stream, void *to, lk_gpu_stream *other, const void *from,
                                   size_t bytes)
{
    lk__gpu_need(stream->gpu);
    if (other->gpu == stream->gpu)
        return gpu_copy(stream, to, from, bytes, LK_GPU_TO_GPU);
    reach_peer(stream, other->gpu);
    return lk__gpu_check(cudaMemcpyPeerAsync(to, stream->gpu, from, other->gpu, bytes, stream->stream),
                         "copy memory of another GPU");
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static lk_gpu_status gpu_capture_begin(lk_gpu_stream *stream)
{
    lk__gpu_need(stream->gpu);
    /* Relaxed mode allows allocations during the capture, which do not become part of the graph. */
    return lk__gpu_check(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeRelaxed), "begin a graph");
}

/* Waits for the last launch, which may still run. */
static void destroy_graph(lk_gpu_graph *graph)
{
    if (graph->launched) {
        cudaEventSynchronize(graph->launched);
        cudaEventDestroy(graph->launched);
    }
    if (graph->executable)
        cudaGraphExecDestroy(graph->executable);
    free(graph);
}

static void gpu_graph_free(lk_gpu_graph *graph)
{
    if (!graph)
        return;
    lk__gpu_need(graph->stream->gpu);
    gpu_pause pause(graph->stream, true);
    destroy_graph(graph);
}

static lk_gpu_status instantiate_graph(const lk_gpu_stream *stream, cudaGraph_t captured, lk_gpu_graph **out)
{
    lk_gpu_graph *graph = (lk_gpu_graph *)calloc(1, sizeof *graph);
    if (!graph)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "CUDA: out of memory for a graph");
    gpu_pause pause(stream, true); /* instantiation allocates memory on the GPU */
    graph->stream = stream;
    lk_gpu_status status = lk__gpu_check(cudaGraphInstantiate(&graph->executable, captured, 0), "make a graph");
    if (status == LK_GPU_OK)
        status = lk__gpu_check(cudaEventCreateWithFlags(&graph->launched, cudaEventDisableTiming), "make an event");
    if (status == LK_GPU_OK)
        *out = graph;
    else
        destroy_graph(graph);
    return status;
}

static lk_gpu_status gpu_capture_end(lk_gpu_stream *stream, lk_gpu_graph **out)
{
    LK_GPU_TRY(lk__gpu_use(stream->gpu)); /* the graph's event belongs to the current GPU */
    cudaGraph_t captured = NULL;
    *out = NULL;
    LK_GPU_TRY(lk__gpu_check(cudaStreamEndCapture(stream->stream, &captured), "end a graph"));
    lk_gpu_status status = instantiate_graph(stream, captured, out);
    cudaGraphDestroy(captured);
    return status;
}

static lk_gpu_status gpu_graph_launch(lk_gpu_stream *stream, lk_gpu_graph *graph)
{
    lk__gpu_need(stream->gpu);
    LK_GPU_TRY(lk__gpu_check(cudaGraphLaunch(graph->executable, stream->stream), "launch a graph"));
    return lk__gpu_check(cudaEventRecord(graph->launched, stream->stream), "record an event");
}

/* --- profilers ---------------------------------------------------------------------------------------------------- */

static void gpu_range(const char *name)
{
#ifdef LK_GPU_NVTX
    if (name)
        nvtxRangePushA(name);
    else
        nvtxRangePop();
#else
    (void)name;
#endif
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const lk_gpu_driver table = {
    LK_GPU_INTERFACE, sizeof(lk_gpu_driver), lk__gpu_error_text,
#define LK_GPU_ENTRY(result, name, ...) gpu_##name,
#include "cuda/driver.def"
#undef LK_GPU_ENTRY
    lk__gpu_choose,   lk__gpu_engines,       lk__gpu_choices,    lk__gpu_nccl,
#define LK_GPU_KERNEL(name) lk__gpu_##name,
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL
};

extern "C" __attribute__((visibility("default"))) const lk_gpu_driver *lk_gpu_driver_table(void)
{
    return &table;
}
