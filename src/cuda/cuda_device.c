/* A CUDA device has one stream for the work that the device's thread starts, and another one for reads by the host. */
#include "cuda/cuda_device.h"

#include "base/mem.h"
#include "core/trace.h"
#include "cuda/cuda.h"
#include "cuda/cuda_graph.h"
#include "cuda/cuda_links.h"
#include "cuda/cuda_ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof((lk_gpu_info *)NULL)->uuid == sizeof((lk_device_identity *)NULL)->bytes,
               "what identifies a GPU is its UUID");

/* --- GPUs --------------------------------------------------------------------------------------------------------- */

/* The signs of an NVIDIA driver: a file that exists while its kernel module is loaded; its control device, which a
 * container has too; and /dev/dxg, which takes its place under Windows (WSL). */
bool lk__cuda_has_driver(void)
{
    static const char *const signs[] = {"/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"};
    const char *plugin = getenv("LOCKSTEP_CUDA_PLUGIN");
    bool is_there = plugin && *plugin;
    for (size_t i = 0; i < sizeof signs / sizeof *signs && !is_there; i++)
        is_there = access(signs[i], F_OK) == 0;
    return is_there;
}

int lk__cuda_available(void)
{
    const lk_gpu_driver *driver = lk__cuda_driver(NULL);
    return driver ? driver->count() : 0;
}

static lk_status cuda_device_find_gpu(int index, const lk_gpu_driver **driver)
{
    const char *reason;
    *driver = lk__cuda_driver(&reason);
    if (!*driver)
        LK_FAIL(LK_ERR_DEVICE, "cuda:%d: no CUDA: %s", index, reason);
    if ((*driver)->count() == 0)
        LK_FAIL(LK_ERR_DEVICE, "cuda:%d: no GPU: %s", index, (*driver)->error());
    if (index >= (*driver)->count())
        LK_FAIL(LK_ERR_DEVICE, "cuda:%d: there is no such GPU: the last is cuda:%d", index, (*driver)->count() - 1);
    return LK_OK;
}

static void cuda_device_append_text(char *text, int size, const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(text);
    va_start(arguments, format);
    vsnprintf(text + used, (size_t)size - used, format, arguments);
    va_end(arguments);
}

static void append_path(const lk_gpu_path *path, char *text, int size)
{
    static const char *const names[] = {
        [LK_GPU_PATH_UNKNOWN] = "by a link that NVML does not tell of",
        [LK_GPU_PATH_NVLINK] = "by NVLink",
        [LK_GPU_PATH_BOARD] = "on the same board",
        [LK_GPU_PATH_SWITCH] = "by PCIe through one switch",
        [LK_GPU_PATH_SWITCHES] = "by PCIe through several switches",
        [LK_GPU_PATH_BRIDGE] = "by PCIe through the host bridge",
        [LK_GPU_PATH_NODE] = "by PCIe through host bridges of a NUMA node",
        [LK_GPU_PATH_SYSTEM] = "by PCIe between NUMA nodes",
    };
    cuda_device_append_text(text, size, "%s", names[path->kind]);
    if (path->nvlinks > 0)
        cuda_device_append_text(text, size, " (%d link%s)", path->nvlinks, path->nvlinks == 1 ? "" : "s");
}

lk_status lk__cuda_describe(int index, char *text, int size)
{
    const lk_gpu_driver *driver;
    lk_gpu_info info;
    LK_TRY(cuda_device_find_gpu(index, &driver));
    LK_TRY(lk__cuda_check(driver, driver->describe(index, &info)));
    snprintf(text, (size_t)size, "%s, compute capability %d.%d, %.0f GiB, %d multiprocessors, PCI %s", info.name,
             info.capability[0], info.capability[1], (double)info.memory / (1 << 30), info.multiprocessors, info.bus);
    for (int other = 0, n = driver->count(); other < n && other < 32; other++) {
        lk_gpu_path path;
        if (other == index)
            continue;
        LK_TRY(lk__cuda_check(driver, driver->path_between(index, other, &path)));
        cuda_device_append_text(
            text, size, info.peers >> other & 1 ? ", reaches cuda:%d " : ", does not reach cuda:%d, there ", other);
        append_path(&path, text, size);
    }
    return LK_OK;
}

lk_status lk__cuda_identify(int index, lk_device_identity *identity)
{
    const lk_gpu_driver *driver;
    lk_gpu_info info;
    LK_TRY(cuda_device_find_gpu(index, &driver));
    LK_TRY(lk__cuda_check(driver, driver->describe(index, &info)));
    memcpy(identity->bytes, info.uuid, sizeof identity->bytes);
    return LK_OK;
}

lk_status lk__cuda_describe_kind(char *text, int size)
{
    const char *reason;
    const lk_gpu_driver *driver = lk__cuda_driver(&reason);
    lk_gpu_versions versions;
    if (!driver)
        LK_FAIL(LK_ERR_DEVICE, "no CUDA: %s", reason);
    driver->versions(&versions);
    snprintf(text, (size_t)size, "%s%s, CUDA %s", *versions.driver ? "driver " : "no driver", versions.driver,
             versions.runtime);
    if (*versions.cublas)
        cuda_device_append_text(text, size, ", cuBLASLt %s", versions.cublas);
    if (*versions.cudnn)
        cuda_device_append_text(text, size, ", cuDNN %s", versions.cudnn);
    if (*versions.nvrtc)
        cuda_device_append_text(text, size, ", NVRTC %s", versions.nvrtc);
    if (*versions.nccl)
        cuda_device_append_text(text, size, ", NCCL %s", versions.nccl);
    return LK_OK;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void cuda_device_free_events(const lk_gpu_driver *driver, lk_gpu_event **events, int n)
{
    for (int i = 0; i < n; i++)
        if (events[i])
            driver->event_free(events[i]);
}

void lk__cuda_stream_free(lk_cuda *cuda)
{
    if (!cuda)
        return;
    const lk_gpu_driver *driver = cuda->driver;
    cuda_device_free_events(driver, cuda->events, LK_CUDA_EVENTS);
    cuda_device_free_events(driver, cuda->written, LK_CUDA_BOUNCES);
    cuda_device_free_events(driver, &cuda->followed, 1);
    cuda_device_free_events(driver, cuda->stamps, LK_STAMPS);
    cuda_device_free_events(driver, &cuda->now, 1);
    for (int i = 0; i < LK_CUDA_BOUNCES; i++)
        if (cuda->write_bounce[i])
            driver->pinned_free(cuda->trunk, cuda->write_bounce[i]);
    if (cuda->read_bounce)
        driver->pinned_free(cuda->trunk, cuda->read_bounce);
    lk__cuda_graphs_close(cuda);
    driver->stream_close(cuda->reader);
    driver->stream_close(cuda->trunk);
    pthread_mutex_destroy(&cuda->reading);
    pthread_mutex_destroy(&cuda->capturing);
    pthread_mutex_destroy(&cuda->fault.lock);
    pthread_mutex_destroy(&cuda->linking);
    lk__free(cuda);
}

static lk_status cuda_device_new_events(lk_cuda *cuda, lk_gpu_event **events, int n)
{
    for (int i = 0; i < n; i++)
        LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->event_new(cuda->stream, &events[i])));
    return LK_OK;
}

static lk_status cuda_device_new_bounce(lk_cuda *cuda, void **buffer)
{
    return lk__cuda_check(cuda->driver, cuda->driver->pinned_alloc(cuda->stream, LK_CUDA_BOUNCE_BYTES, buffer));
}

/* The device whose exchanges must pause; for a stream of links the device that it belongs to. */
static lk_cuda *exchanging_device(void *user)
{
    lk_cuda *cuda = user;
    return cuda->device ? cuda->device : cuda;
}

static void cuda_device_begin_pause(void *user, bool until_idle)
{
    lk__cuda_pause_exchanges(exchanging_device(user), until_idle);
}

static void cuda_device_end_pause(void *user)
{
    lk__cuda_resume_exchanges(exchanging_device(user));
}

static lk_status cuda_device_open_gpu_stream(lk_cuda *cuda, lk_gpu_stream **stream)
{
    lk_gpu_pauses pauses = {cuda_device_begin_pause, cuda_device_end_pause, cuda};
    return lk__cuda_check(cuda->driver, cuda->driver->stream_open(cuda->gpu, &pauses, stream));
}

static lk_status cuda_device_open_stream(lk_cuda *cuda)
{
    LK_TRY(cuda_device_open_gpu_stream(cuda, &cuda->trunk));
    cuda->stream = cuda->trunk;
    LK_TRY(cuda_device_new_events(cuda, cuda->events, LK_CUDA_EVENTS));
    return cuda_device_new_events(cuda, &cuda->followed, 1);
}

lk_status lk__cuda_stream_new(const lk_gpu_driver *driver, int gpu, lk_cuda *device, lk_cuda **out)
{
    lk_cuda *cuda = lk__calloc(1, sizeof *cuda);
    if (!cuda)
        return LK_ERR_MEMORY;
    cuda->driver = driver;
    cuda->gpu = gpu;
    cuda->device = device;
    pthread_mutex_init(&cuda->reading, NULL);
    pthread_mutex_init(&cuda->capturing, NULL);
    pthread_mutex_init(&cuda->fault.lock, NULL);
    pthread_mutex_init(&cuda->linking, NULL);
    lk_status status = cuda_device_open_stream(cuda);
    if (status == LK_OK)
        *out = cuda;
    else
        lk__cuda_stream_free(cuda);
    return status;
}

static lk_status cuda_device_open_copies(lk_cuda *cuda)
{
    LK_TRY(cuda_device_open_gpu_stream(cuda, &cuda->reader));
    LK_TRY(cuda_device_new_events(cuda, cuda->written, LK_CUDA_BOUNCES));
    LK_TRY(cuda_device_new_bounce(cuda, &cuda->read_bounce));
    for (int i = 0; i < LK_CUDA_BOUNCES; i++)
        LK_TRY(cuda_device_new_bounce(cuda, &cuda->write_bounce[i]));
    return LK_OK;
}

lk_status lk__cuda_open(lk_device *device, void **state)
{
    const lk_gpu_driver *driver;
    LK_TRY(cuda_device_find_gpu(device->index, &driver));
    lk_cuda *cuda;
    LK_TRY(lk__cuda_stream_new(driver, device->index, NULL, &cuda));
    lk_status status = cuda_device_open_copies(cuda);
    if (status == LK_OK)
        *state = cuda;
    else
        lk__cuda_stream_free(cuda);
    return status;
}

/* Drops a failure: the first launch will report it. */
void lk__cuda_enter(lk_device *device, void *state)
{
    (void)device;
    const lk_cuda *cuda = state;
    cuda->driver->stream_use(cuda->stream);
}

/* Frees the device's memory first, because that needs the streams. */
void lk__cuda_close(lk_device *device, void *state)
{
    lk__allocator_put(device->allocator, device->arena);
    device->arena = NULL;
    lk__allocator_trim(device->allocator);
    lk__cuda_stream_free(state);
}

void *lk__cuda_alloc(void *self, size_t bytes)
{
    const lk_device *device = self;
    lk_cuda *cuda = device->state;
    void *data = NULL;
    lk_status status = lk__cuda_check(cuda->driver, cuda->driver->alloc(cuda->trunk, bytes, &data));
    return status == LK_OK ? data : NULL;
}

void lk__cuda_free(void *self, void *data)
{
    const lk_device *device = self;
    lk_cuda *cuda = device->state;
    cuda->driver->alloc_free(cuda->trunk, data);
}

/* --- work in flight ----------------------------------------------------------------------------------------------- */

void lk__cuda_fail(lk_cuda *cuda, lk_status status, const char *message)
{
    lk_cuda_fault *fault = &cuda->fault;
    pthread_mutex_lock(&fault->lock);
    if (atomic_load(&fault->status) == LK_OK) {
        snprintf(fault->message, sizeof fault->message, "%s", message);
        atomic_store(&fault->status, status);
    }
    pthread_mutex_unlock(&fault->lock);
}

lk_status lk__cuda_check_fault(lk_cuda *cuda)
{
    lk_status status = atomic_load(&cuda->fault.status);
    return status == LK_OK ? LK_OK : lk__fail(status, "%s", cuda->fault.message);
}

static lk_status cuda_device_offload_mark(lk_device *device, uint64_t sequence)
{
    int n;
    lk_cuda *const *streams = lk__cuda_streams_of(device, &n);
    lk_status status = LK_OK;
    for (int i = 0; i < n; i++) {
        lk_cuda *cuda = streams[i];
        lk_gpu_event *event = cuda->events[sequence % LK_CUDA_EVENTS];
        lk_status marked = lk__cuda_check(cuda->driver, cuda->driver->event_record(cuda->trunk, event));
        status = status == LK_OK ? marked : status;
        atomic_store_explicit(&cuda->marked, sequence, memory_order_release);
    }
    return status;
}

lk_gpu_event *lk__cuda_event_of(lk_cuda *cuda, uint64_t sequence)
{
    uint64_t marked = atomic_load_explicit(&cuda->marked, memory_order_acquire);
    uint64_t oldest = marked < LK_CUDA_EVENTS ? 1 : marked - LK_CUDA_EVENTS + 1;
    return cuda->events[(sequence < oldest ? marked : sequence) % LK_CUDA_EVENTS];
}

static lk_status cuda_device_check_faults(lk_cuda *const *streams, int n)
{
    for (int i = 0; i < n; i++)
        LK_TRY(lk__cuda_check_fault(streams[i]));
    return LK_OK;
}

static lk_status cuda_device_offload_wait(lk_device *device, uint64_t sequence)
{
    int n;
    lk_cuda *const *streams = lk__cuda_streams_of(device, &n);
    for (int i = 0; i < n; i++)
        LK_TRY(lk__cuda_check(streams[i]->driver,
                              streams[i]->driver->event_wait(lk__cuda_event_of(streams[i], sequence))));
    return cuda_device_check_faults(streams, n);
}

static lk_status cuda_device_offload_follow(lk_device *device, lk_device *other, uint64_t sequence)
{
    int n, others;
    lk_cuda *const *streams = lk__cuda_streams_of(device, &n), *const *before = lk__cuda_streams_of(other, &others);
    for (int i = 0; i < n; i++) {
        const lk_gpu_driver *driver = streams[i]->driver;
        for (int j = 0; j < others; j++)
            LK_TRY(lk__cuda_check(driver,
                                  driver->event_follow(streams[i]->trunk, lk__cuda_event_of(before[j], sequence))));
    }
    return LK_OK;
}

static lk_status cuda_device_offload_drain(lk_device *device)
{
    int n;
    lk_cuda *const *streams = lk__cuda_streams_of(device, &n);
    for (int i = 0; i < n; i++)
        LK_TRY(lk__cuda_check(streams[i]->driver, streams[i]->driver->stream_wait(streams[i]->trunk)));
    /* Outside the synchronous engine a drain is the end of a queue, where no caller waits for a status. */
    return lk__engine_is_sync() ? cuda_device_check_faults(streams, n) : LK_OK;
}

/* --- times -------------------------------------------------------------------------------------------------------- */

static lk_status cuda_device_record_timer(lk_cuda *cuda, lk_gpu_event **timer)
{
    if (!*timer)
        LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->timer_new(cuda->trunk, timer)));
    return lk__cuda_check(cuda->driver, cuda->driver->event_record(cuda->trunk, *timer));
}

static lk_status cuda_device_offload_stamp(lk_device *device, int slot)
{
    lk_cuda *cuda = device->state;
    return cuda_device_record_timer(cuda, &cuda->stamps[slot]);
}

/* Relates the GPU's clock to the host's by reading both after one wait, which makes the times some microseconds late.
 */
static lk_status cuda_device_read_stamps(lk_device *device, int n, int64_t *times)
{
    lk_cuda *cuda = device->state;
    LK_TRY(cuda_device_record_timer(cuda, &cuda->now));
    LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->event_wait(cuda->now)));
    int64_t now = lk__nanoseconds();
    for (int i = 0; i < n; i++) {
        float milliseconds;
        LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->elapsed(cuda->stamps[i], cuda->now, &milliseconds)));
        times[i] = now - (int64_t)(1e6 * (double)milliseconds);
    }
    return LK_OK;
}

/* --- copies between memories -------------------------------------------------------------------------------------- */

/* The bytes of the next copy through a bounce buffer. */
static size_t cuda_device_bounce_bytes(size_t left)
{
    return left < LK_CUDA_BOUNCE_BYTES ? left : LK_CUDA_BOUNCE_BYTES;
}

static lk_status cuda_device_read_chunk(lk_cuda *cuda, const char *from, char *to, size_t bytes)
{
    const lk_gpu_driver *driver = cuda->driver;
    LK_TRY(lk__cuda_check(driver, driver->copy(cuda->reader, cuda->read_bounce, from, bytes, LK_GPU_TO_HOST)));
    LK_TRY(lk__cuda_check(driver, driver->stream_wait(cuda->reader)));
    memcpy(to, cuda->read_bounce, bytes);
    return LK_OK;
}

static lk_status cuda_device_read_memory(lk_device *device, const void *from, void *to, size_t bytes)
{
    lk_cuda *cuda = device->state;
    lk_status status = LK_OK;
    pthread_mutex_lock(&cuda->reading);
    for (size_t done = 0; done < bytes && status == LK_OK; done += cuda_device_bounce_bytes(bytes - done))
        status = cuda_device_read_chunk(cuda, (const char *)from + done, (char *)to + done,
                                        cuda_device_bounce_bytes(bytes - done));
    pthread_mutex_unlock(&cuda->reading);
    return status;
}

static lk_status cuda_device_write_chunk(lk_cuda *cuda, char *to, const char *from, size_t bytes)
{
    const lk_gpu_driver *driver = cuda->driver;
    int i = cuda->next_bounce;
    cuda->next_bounce = (i + 1) % LK_CUDA_BOUNCES;
    LK_TRY(lk__cuda_check(driver, driver->event_wait(cuda->written[i])));
    memcpy(cuda->write_bounce[i], from, bytes);
    LK_TRY(lk__cuda_check(driver, driver->copy(cuda->stream, to, cuda->write_bounce[i], bytes, LK_GPU_FROM_HOST)));
    return lk__cuda_check(driver, driver->event_record(cuda->stream, cuda->written[i]));
}

static lk_status cuda_device_write_memory(lk_device *device, void *to, const void *from, size_t bytes, lk_dtype dtype)
{
    (void)dtype;
    for (size_t done = 0; done < bytes; done += cuda_device_bounce_bytes(bytes - done))
        LK_TRY(cuda_device_write_chunk(device->state, (char *)to + done, (const char *)from + done,
                                       cuda_device_bounce_bytes(bytes - done)));
    return LK_OK;
}

/* As soon as this device's thread releases the tensor, the other device may reuse its memory, although the copy has not
 * run yet. So the other device's stream is made to wait for the copy. */
static lk_status cuda_device_offload_bring(lk_device *device, void *to, lk_device *other, const void *from,
                                           size_t bytes)
{
    lk_cuda *cuda = device->state, *source = other->state;
    const lk_gpu_driver *driver = cuda->driver;
    if (source == cuda)
        return lk__cuda_check(driver, driver->copy(cuda->stream, to, from, bytes, LK_GPU_TO_GPU));
    LK_TRY(lk__cuda_check(driver, driver->copy_peer(cuda->stream, to, source->trunk, from, bytes)));
    LK_TRY(lk__cuda_check(driver, driver->event_record(cuda->stream, cuda->followed)));
    pthread_mutex_lock(&source->capturing);
    lk_status status = lk__cuda_check(driver, driver->event_follow(source->trunk, cuda->followed));
    pthread_mutex_unlock(&source->capturing);
    return status;
}

static lk_status cuda_device_offload_memory_left(lk_device *device, int64_t *bytes)
{
    lk_cuda *cuda = device->state;
    pthread_mutex_lock(&cuda->reading);
    lk_status status = lk__cuda_check(cuda->driver, cuda->driver->memory_left(cuda->reader, bytes));
    pthread_mutex_unlock(&cuda->reading);
    return status;
}

static lk_status cuda_device_offload_workspace(lk_device *device, int64_t *bytes)
{
    const lk_cuda *cuda = device->state;
    lk_gpu_info info;
    LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->describe(cuda->gpu, &info)));
    *bytes = info.workspace;
    return LK_OK;
}

static void cuda_device_offload_range(lk_device *device, const char *name)
{
    const lk_cuda *cuda = device->state;
    cuda->driver->range(name);
}

const lk_offload lk__cuda_offload = {
    .mark = cuda_device_offload_mark,
    .wait = cuda_device_offload_wait,
    .follow = cuda_device_offload_follow,
    .drain = cuda_device_offload_drain,
    .stamp = cuda_device_offload_stamp,
    .read_stamps = cuda_device_read_stamps,
    .range = cuda_device_offload_range,
    .measure_peak = lk__cuda_measure_peak,
    .measure_copy = lk__cuda_measure_copy,
    .read = cuda_device_read_memory,
    .write = cuda_device_write_memory,
    .bring = cuda_device_offload_bring,
    .memory_left = cuda_device_offload_memory_left,
    .workspace = cuda_device_offload_workspace,
};

const char *lk__cuda_bf16_is_fast(const lk_device *device)
{
    const lk_gpu_driver *driver;
    lk_gpu_info info;
    bool is_known =
        cuda_device_find_gpu(device->index, &driver) == LK_OK && driver->describe(device->index, &info) == LK_GPU_OK;
    return is_known && info.capability[0] >= 8 ? "the GPU's tensor cores multiply bf16" : NULL;
}
