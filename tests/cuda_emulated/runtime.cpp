/* The emulated runtime: streams, events, graphs, devices, memory and injected errors. */
#include "cuda_runtime.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

/* --- streams ------------------------------------------------------------------------------------------------------ */

/* A point in a stream's work. */
struct point {
    emulated_stream *stream;
    bool reached;
    std::chrono::steady_clock::time_point when; /* it was reached */
};

struct task {
    std::function<void()> work;
    std::shared_ptr<point> reach, wait;
    std::function<bool()> may_run; /* empty: it may */
};

struct emulated_stream {
    int device;
    std::deque<task> tasks;
    emulated_graph *capturing;
};

/* An event is the point at which it was recorded last: point `number` of `graph` if that was in a capture, otherwise
 * `latest`. */
struct emulated_event {
    int device;
    std::shared_ptr<point> latest;
    emulated_graph *graph;
    size_t number;
    bool is_timer;
};

/* An entry of a graph: work, a point, or a wait for a point. */
struct graph_entry {
    size_t stream; /* index in the graph's streams; 0: the one on which the capture began */
    std::function<void()> work;
    bool reaches, waits;
    size_t number; /* of the point */
};

struct emulated_graph {
    std::vector<graph_entry> entries;
    std::vector<emulated_stream *> streams; /* an executable graph owns all except the first */
    std::vector<size_t> open;               /* for each stream, entries for which the first stream does not wait yet */
    std::vector<size_t> stream_of_point, open_at_point;
};

static std::recursive_mutex lock;
static thread_local int current_device;
static thread_local cudaError_t last_error;

/* --- injected errors ---------------------------------------------------------------------------------------------- */

/* $LOCKSTEP_EMULATED_FAIL=KIND:N:ERROR makes the N-th (from 1) call of a kind fail with the error of that number. The
 * kinds are "count"; "device", which makes a device current; "launch", which queues a kernel on a stream; and "run",
 * which runs the kernel. The next call that checks for errors reports an error of "run". Errors from 200 on end a GPU's
 * work: every later call fails with them. */
static struct {
    std::once_flag read;
    char kind[16];
    long at, calls;
    int error;
    bool is_lost;
} injection;

static std::mutex injection_lock;

static cudaError_t lost(void)
{
    std::lock_guard<std::mutex> guard(injection_lock);
    return injection.is_lost ? (cudaError_t)injection.error : cudaSuccess;
}

static cudaError_t injected(const char *kind)
{
    std::call_once(injection.read, []() {
        const char *text = getenv("LOCKSTEP_EMULATED_FAIL");
        if (text && sscanf(text, "%15[a-z]:%ld:%d", injection.kind, &injection.at, &injection.error) != 3)
            abort();
    });
    std::lock_guard<std::mutex> guard(injection_lock);
    if (injection.is_lost)
        return (cudaError_t)injection.error;
    if (strcmp(injection.kind, kind) != 0 || ++injection.calls != injection.at)
        return cudaSuccess;
    injection.is_lost = injection.error >= 200;
    return (cudaError_t)injection.error;
}

static thread_local int graphs_being_made; /* by this thread */

static cudaError_t failed(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, nullptr, 10) : otherwise;
}

/* $LOCKSTEP_EMULATED_RUNS=no: kernels and copies do nothing and memory is zero, for tests that only count them. */
static bool kernels_run(void)
{
    static const bool answer = []() {
        const char *text = getenv("LOCKSTEP_EMULATED_RUNS");
        return !text || strcmp(text, "no") != 0;
    }();
    return answer;
}

static int64_t given; /* kernels and copies queued on all streams */
static std::atomic<int64_t> launches;

void emulated_count_launch(void)
{
    launches++;
}

/* For tests: the kernels of the plug-in's own that were launched or captured. */
extern "C" __attribute__((visibility("default"))) int64_t lk_gpu_emulated_launches(void)
{
    return launches;
}

/* After $LOCKSTEP_EMULATED_LOST kernels and copies every call fails, as after an Xid. */
static cudaError_t check_alive(void)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    return given > setting("LOCKSTEP_EMULATED_LOST", INT64_MAX) ? failed(cudaErrorLaunchFailure) : failed(lost());
}

/* The following functions return false if held work may not run yet. */
static bool run_first(emulated_stream *stream);

static bool run_until(const std::shared_ptr<point> &where)
{
    while (where && !where->reached)
        if (!run_first(where->stream))
            return false;
    return true;
}

static bool run_first(emulated_stream *stream)
{
    if (stream->tasks.empty()) {
        fprintf(stderr, "emulated CUDA: something waits for what was never given to a stream\n");
        abort();
    }
    if (!run_until(stream->tasks.front().wait))
        return false;
    if (stream->tasks.front().may_run && !stream->tasks.front().may_run())
        return false;
    task first = stream->tasks.front();
    stream->tasks.pop_front();
    if (first.work && injected("run") == cudaSuccess)
        first.work();
    if (first.reach) {
        first.reach->reached = true;
        first.reach->when = std::chrono::steady_clock::now();
    }
    return true;
}

static bool run_all(emulated_stream *stream)
{
    while (!stream->tasks.empty())
        if (!run_first(stream))
            return false;
    return true;
}

/* Repeats `run` until it returns true. Releases the lock in between, so that other threads can go on. */
template <typename Run> static void run_patiently(Run run)
{
    for (;;) {
        {
            std::lock_guard<std::recursive_mutex> guard(lock);
            if (run())
                return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

static size_t stream_index(const emulated_graph *graph, const emulated_stream *stream)
{
    size_t i = 0;
    while (graph->streams[i] != stream)
        i++;
    return i;
}

static void keep(emulated_stream *stream, graph_entry entry)
{
    emulated_graph *graph = stream->capturing;
    entry.stream = stream_index(graph, stream);
    graph->entries.push_back(std::move(entry));
    graph->open[entry.stream]++;
}

void emulated_push(cudaStream_t stream, std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    given++;
    if (failed(injected("launch")) != cudaSuccess)
        return;
    if (!kernels_run())
        work = nullptr;
    if (stream->capturing)
        keep(stream, {0, std::move(work), false, false, 0});
    else
        stream->tasks.push_back({std::move(work), nullptr, nullptr, nullptr});
}

void emulated_push_held(cudaStream_t stream, std::function<bool()> may_run, std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    stream->tasks.push_back({std::move(work), nullptr, nullptr, std::move(may_run)});
}

std::function<bool()> emulated_push_reachable(cudaStream_t stream, std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto here = std::make_shared<point>(point{stream, false, {}});
    stream->tasks.push_back({std::move(work), here, nullptr, nullptr});
    return [here]() {
        std::lock_guard<std::recursive_mutex> running(lock);
        return run_until(here);
    };
}

void emulated_require_device(cudaStream_t stream)
{
    if (stream->device == current_device)
        return;
    fprintf(stderr, "emulated CUDA: a kernel is launched on GPU %d by a thread that uses GPU %d\n", stream->device,
            current_device);
    abort();
}

static std::set<std::pair<const void *, int>> loaded; /* kernels, each with the device that it is loaded on */

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel)
{
    emulated_need_context(current_device);
    emulated_require_no_exchange(current_device, true, "a kernel is loaded");
    std::lock_guard<std::recursive_mutex> guard(lock);
    loaded.insert({kernel, current_device});
    *attributes = {};
    return cudaSuccess;
}

/* The limits are those of table "Technical Specifications per Compute Capability" of NVIDIA's programming guide. */
void emulated_check_launch(const void *kernel, dim3 grid, dim3 block, size_t parameter_bytes, cudaStream_t stream)
{
    const char *problem = NULL;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
        problem = "a grid that no GPU takes";
    else if (threads == 0 || threads > 1024 || block.z > 64)
        problem = "a block that no GPU takes";
    else if (parameter_bytes > 4096)
        problem = "more than 4096 bytes of arguments";
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!problem && !loaded.count({kernel, stream->device}))
        problem = "code that is not loaded yet";
    if (!problem)
        return;
    fprintf(stderr, "emulated CUDA: a kernel is launched with %s: grid %u x %u x %u, block %u x %u x %u, %zu bytes\n",
            problem, grid.x, grid.y, grid.z, block.x, block.y, block.z, parameter_bytes);
    abort();
}

int emulated_device_of(cudaStream_t stream)
{
    return stream->device;
}

static std::vector<emulated_stream *> streams;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    emulated_context_is_used(current_device);
    *stream = new emulated_stream{current_device, {}, nullptr};
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emulated_need_context(current_device);
    if (graphs_being_made > 0)
        return failed(cudaErrorStreamCaptureUnsupported);
    run_patiently([stream]() { return run_all(stream); });
    return check_alive();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emulated_need_context(current_device);
    run_patiently([stream]() { return run_all(stream); });
    std::lock_guard<std::recursive_mutex> guard(lock);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream)
            streams.erase(streams.begin() + (ptrdiff_t)i);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    emulated_need_context(current_device);
    *event = new emulated_event{};
    (*event)->device = current_device;
    (*event)->is_timer = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return event->device == stream->device ? emulated_record(event, stream) : failed(cudaErrorInvalidResourceHandle);
}

cudaError_t emulated_record(cudaEvent_t event, cudaStream_t stream)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    event->graph = stream->capturing;
    if (stream->capturing) {
        emulated_graph *graph = stream->capturing;
        size_t index = stream_index(graph, stream);
        event->number = graph->stream_of_point.size();
        keep(stream, {0, nullptr, true, false, event->number});
        graph->stream_of_point.push_back(index);
        graph->open_at_point.push_back(graph->open[index]);
        return cudaSuccess;
    }
    event->latest = std::make_shared<point>(point{stream, false, {}});
    stream->tasks.push_back({nullptr, event->latest, nullptr, nullptr});
    return check_alive();
}

/* A stream that waits for a point of a graph joins its capture. */
static cudaError_t wait_in_graph(cudaStream_t stream, cudaEvent_t event)
{
    emulated_graph *graph = event->graph;
    if (!graph || (stream->capturing && stream->capturing != graph))
        return failed(cudaErrorStreamCaptureIsolation);
    if (!stream->capturing) {
        stream->capturing = graph;
        graph->streams.push_back(stream);
        graph->open.push_back(0);
    }
    keep(stream, {0, nullptr, false, true, event->number});
    size_t from = graph->stream_of_point[event->number];
    if (stream_index(graph, stream) == 0 && graph->open[from] == graph->open_at_point[event->number])
        graph->open[from] = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (stream->capturing || event->graph)
        return wait_in_graph(stream, event);
    if (event->latest && !event->latest->reached)
        stream->tasks.push_back({nullptr, nullptr, event->latest, nullptr});
    return check_alive();
}

/* False: the event was recorded in a capture. */
static bool look_at(cudaEvent_t event, std::shared_ptr<point> *where)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    *where = event->latest;
    return !event->graph;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    emulated_need_context(current_device);
    std::shared_ptr<point> where;
    if (!look_at(event, &where) || graphs_being_made > 0)
        return failed(cudaErrorStreamCaptureUnsupported);
    run_patiently([&where]() { return run_until(where); });
    return check_alive();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    emulated_need_context(current_device);
    std::shared_ptr<point> where;
    if (!look_at(event, &where))
        return failed(cudaErrorStreamCaptureUnsupported);
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = check_alive();
    return error != cudaSuccess || !where || where->reached ? error : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!from->is_timer || !to->is_timer || !from->latest || !to->latest || from->graph || to->graph)
        return failed(cudaErrorInvalidValue);
    if (!from->latest->reached || !to->latest->reached)
        return failed(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(to->latest->when - from->latest->when).count();
    return check_alive();
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (stream->capturing)
        return failed(cudaErrorInvalidValue);
    stream->capturing = new emulated_graph{};
    stream->capturing->streams.push_back(stream);
    stream->capturing->open.push_back(0);
    graphs_being_made++;
    return cudaSuccess;
}

/* The first stream must wait for every stream that joined the capture. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    emulated_graph *made = stream->capturing;
    *graph = nullptr;
    if (!made || made->streams[0] != stream)
        return failed(cudaErrorInvalidValue);
    graphs_being_made--;
    bool is_joined = true;
    for (size_t i = 0; i < made->streams.size(); i++) {
        made->streams[i]->capturing = nullptr;
        is_joined &= i == 0 || made->open[i] == 0;
    }
    if (!is_joined) {
        delete made;
        return failed(cudaErrorStreamCaptureUnjoined);
    }
    *graph = made;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    emulated_need_context(current_device);
    emulated_require_no_exchange(current_device, true, "a graph is made");
    std::lock_guard<std::recursive_mutex> guard(lock);
    *executable = new emulated_graph(*graph);
    for (size_t i = 1; i < graph->streams.size(); i++) {
        (*executable)->streams[i] = new emulated_stream{graph->streams[i]->device, {}, nullptr};
        streams.push_back((*executable)->streams[i]);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    std::vector<std::shared_ptr<point>> points;
    for (size_t index : executable->stream_of_point)
        points.push_back(std::make_shared<point>(point{index ? executable->streams[index] : stream, false, {}}));
    for (const graph_entry &entry : executable->entries) {
        emulated_stream *to = entry.stream ? executable->streams[entry.stream] : stream;
        to->tasks.push_back({entry.work, entry.reaches ? points[entry.number] : nullptr,
                             entry.waits ? points[entry.number] : nullptr, nullptr});
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    emulated_need_context(current_device);
    emulated_require_no_exchange(current_device, true, "a graph is destroyed");
    std::lock_guard<std::recursive_mutex> guard(lock);
    for (size_t i = 1; i < executable->streams.size(); i++)
        cudaStreamDestroy(executable->streams[i]);
    delete executable;
    return cudaSuccess;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* The machine has $LOCKSTEP_EMULATED_GPUS GPUs with $LOCKSTEP_EMULATED_MEMORY bytes each; number
 * $LOCKSTEP_EMULATED_OTHER is another model. As in CUDA, $CUDA_VISIBLE_DEVICES lists those that a process sees; the
 * list ends at the first that does not exist. */
static std::vector<int> visible_gpus(void)
{
    int machine = (int)setting("LOCKSTEP_EMULATED_GPUS", 2);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    std::vector<int> gpus;
    for (int gpu = 0; gpu < machine && !list; gpu++)
        gpus.push_back(gpu);
    while (list) {
        char *end;
        long gpu = strtol(list, &end, 10);
        if (end == list || gpu < 0 || gpu >= machine)
            break;
        gpus.push_back((int)gpu);
        list = *end == ',' ? end + 1 : nullptr;
    }
    return gpus;
}

static int device_count(void)
{
    return (int)visible_gpus().size();
}

int emulated_gpu(int device)
{
    return visible_gpus()[(size_t)device];
}

static int64_t memory_of_all(void)
{
    return setting("LOCKSTEP_EMULATED_MEMORY", (int64_t)8 << 30);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    cudaError_t error = failed(injected("count"));
    if (error != cudaSuccess)
        return error;
    *count = device_count();
    return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count())
        return failed(cudaErrorInvalidDevice);
    current_device = device;
    cudaError_t error = failed(injected("device"));
    if (error == cudaSuccess)
        emulated_need_context(device);
    return error;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= device_count())
        return failed(cudaErrorInvalidDevice);
    *properties = {};
    int gpu = emulated_gpu(device);
    bool is_other = setting("LOCKSTEP_EMULATED_OTHER", -1) == gpu;
    snprintf(properties->name, sizeof properties->name, is_other ? "other emulated GPU" : "emulated GPU");
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->pciBusID = gpu;
    snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "emulated %d", gpu);
    properties->totalGlobalMem = (size_t)memory_of_all();
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return cudaSuccess;
}

/* Bit i of reached[device]: the device may access the memory of device i. */
static std::atomic<uint32_t> reached[32];

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    if (peer == current_device || peer < 0 || peer >= device_count())
        return failed(cudaErrorInvalidDevice);
    emulated_require_no_exchange(current_device, true, "a peer's memory is mapped");
    reached[current_device] |= 1u << peer;
    return cudaSuccess;
}

/* $LOCKSTEP_EMULATED_DRIVER is the driver's version; 0: there is no driver. */
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)setting("LOCKSTEP_EMULATED_DRIVER", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static const std::map<cudaError_t, std::pair<const char *, const char *>> errors = {
    {cudaSuccess, {"cudaSuccess", "no error"}},
    {cudaErrorInvalidValue, {"cudaErrorInvalidValue", "invalid argument"}},
    {cudaErrorMemoryAllocation, {"cudaErrorMemoryAllocation", "out of memory"}},
    {cudaErrorInvalidResourceHandle, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}},
    {cudaErrorNoDevice, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {cudaErrorInsufficientDriver,
     {"cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"}},
    {cudaErrorDevicesUnavailable, {"cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"}},
    {cudaErrorECCUncorrectable, {"cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"}},
    {cudaErrorLaunchFailure, {"cudaErrorLaunchFailure", "unspecified launch failure"}},
    {cudaErrorInvalidAddressSpace,
     {"cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space"}},
    {cudaErrorInvalidDevice, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
    {cudaErrorLaunchFailure, {"cudaErrorLaunchFailure", "unspecified launch failure"}},
    {cudaErrorStreamCaptureUnsupported,
     {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
    {cudaErrorStreamCaptureUnjoined, {"cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"}},
    {cudaErrorStreamCaptureIsolation,
     {"cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"}},
};

const char *cudaGetErrorName(cudaError_t error)
{
    return errors.count(error) ? errors.at(error).first : "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return errors.count(error) ? errors.at(error).second : "unknown error";
}

cudaError_t cudaGetLastError(void)
{
    check_alive();
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static std::map<void *, size_t> allocations;
static int64_t allocated;

/* Fills new memory, so that memory that was never written is not zero by chance. */
static void *poisoned(size_t bytes)
{
    if (!kernels_run())
        return calloc(1, bytes);
    void *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return data ? memset(data, 0xa5, bytes) : nullptr;
}

cudaError_t cudaMalloc(void **data, size_t bytes)
{
    emulated_need_context(current_device);
    emulated_require_no_exchange(current_device, false, "memory is allocated");
    std::lock_guard<std::recursive_mutex> guard(lock);
    *data = allocated + (int64_t)bytes > memory_of_all() ? nullptr : poisoned(bytes);
    if (!*data)
        return failed(cudaErrorMemoryAllocation);
    allocations[*data] = bytes;
    allocated += (int64_t)bytes;
    return cudaSuccess;
}

/* Waits for all work in flight, as CUDA does. */
cudaError_t cudaFree(void *data)
{
    emulated_need_context(current_device);
    if (!data)
        return cudaSuccess;
    if (graphs_being_made > 0)
        return failed(cudaErrorStreamCaptureUnsupported);
    emulated_require_no_exchange(current_device, true, "memory is freed");
    run_patiently([]() {
        bool have_all_run = true;
        for (emulated_stream *stream : streams)
            have_all_run &= run_all(stream);
        return have_all_run;
    });
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!allocations.count(data)) {
        fprintf(stderr, "emulated CUDA: memory is freed that was not allocated\n");
        abort();
    }
    allocated -= (int64_t)allocations[data];
    allocations.erase(data);
    free(data);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned)
{
    emulated_need_context(current_device);
    emulated_require_no_exchange(current_device, true, "pinned memory is allocated");
    *data = poisoned(bytes);
    return *data ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *data)
{
    emulated_need_context(current_device);
    emulated_require_no_exchange(current_device, true, "pinned memory is freed");
    free(data);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    emulated_need_context(current_device);
    std::lock_guard<std::recursive_mutex> guard(lock);
    *total = (size_t)memory_of_all();
    *left = (size_t)(memory_of_all() - allocated);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    emulated_need_context(current_device);
    emulated_push(stream, [=]() { memmove(to, from, bytes); });
    return check_alive();
}

/* Without peer access CUDA copies through the host. That is correct but slow, and a mistake of the plug-in. */
cudaError_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int peer, size_t bytes, cudaStream_t stream)
{
    if (device != peer && !(reached[device] >> peer & 1)) {
        fprintf(stderr, "emulated CUDA: GPU %d copies from GPU %d, which it was not let at\n", device, peer);
        abort();
    }
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
