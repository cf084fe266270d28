/* The table of driver.h that writes down every kernel, copy and graph that the library starts, and passes all calls on
 * to the plug-in that $LOCKSTEP_CUDA_RECORDED names. tools/gpu_count reads the lines, from the file that
 * $LOCKSTEP_CUDA_COUNTS names. What follows a `capture`, on any stream, is in the graph; bytes are those of operands,
 * and `launches` counts as the other plug-in does.
 *
 *     kernel STREAM NAME LAUNCHES READ WRITTEN FLOPS
 *     copy STREAM DIRECTION BYTES
 *     capture STREAM
 *     captured GRAPH
 *     launch GRAPH
 *     record STREAM EVENT
 *     follow STREAM EVENT
 */
#include "../cuda_recorder/recorder_operands.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <mutex>

static const lk_gpu_driver *inner;
static int64_t (*launches_of_inner)(void);
static FILE *counts;
static std::mutex &lock = *new std::mutex; /* never destroyed: other threads may still run when the process ends */
static std::map<const lk_gpu_stream *, size_t> &streams = *new std::map<const lk_gpu_stream *, size_t>;

/* Streams have the numbers of their first uses. The caller holds the lock. */
static size_t number_of(const lk_gpu_stream *stream)
{
    return streams.emplace(stream, streams.size()).first->second;
}

/* --- floating-point operations of the libraries' kernels ---------------------------------------------------------- */

static double flops_of(const lk_gpu_conv_shape &shape)
{
    const lk_geometry &g = shape.geometry;
    return 2 * (double)lk_gpu_parts(shape.parts) * (double)lk__geometry_y_count(&g) *
           (double)(g.kernel[0] * g.kernel[1] * (g.channels / g.groups));
}

static double flops_of(const lk_gpu_conv &a)
{
    return flops_of(a.shape);
}

static double flops_of(const lk_gpu_conv_input_grad &a)
{
    return flops_of(a.shape);
}

static double flops_of(const lk_gpu_conv_weight_grad &a)
{
    return flops_of(a.shape);
}

static double flops_of(const lk_gpu_matmul &a)
{
    return 2 * (double)lk_gpu_parts(a.parts) * (double)a.rows * (double)a.inner * (double)a.columns;
}

template <typename Arguments> static double flops_of(const Arguments &)
{
    return 0; /* its time is that of its bytes */
}

/* --- bytes that a kernel reads more or less often than its operands have ------------------------------------------ */

/* Goes over its large operands twice, but the second time over dresidual in place of dy and act_y. */
static int64_t reads_beyond(const lk_gpu_normalize_grad &a)
{
    int64_t operands = a.act_y && !a.dresidual ? 3 : 2, parts = lk_gpu_parts(a.parts);
    int64_t kept = a.kept ? lk_gpu_kept_bytes(a.dtype, a.rows, a.channels) : 0;
    return parts * (operands * a.rows * a.channels * (a.dtype == LK_F32 ? 4 : 2) + kept);
}

static int64_t reads_beyond(const lk_gpu_gather &a)
{
    return (a.n - a.rows) * a.row * (int64_t)a.size;
}

static int64_t reads_beyond(const lk_gpu_prepare_images &a)
{
    return (a.n - a.images) * a.channels * a.size.height * a.size.width;
}

template <typename Arguments> static int64_t reads_beyond(const Arguments &)
{
    return 0;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* A library's kernel counts as one launch, whatever the emulation does in its place. */
static int64_t launches_of(const lk_gpu_conv_weight_grad &a, int64_t emulated)
{
    return lk_gpu_has_few_inputs(&a.shape) ? emulated : 1;
}

template <typename Arguments> static int64_t launches_of(const Arguments &, int64_t emulated)
{
    return emulated > 0 ? emulated : 1;
}

template <auto Kernel, typename Arguments>
static lk_gpu_status count_kernel(const char *name, lk_gpu_stream *stream, const Arguments *arguments)
{
    operands list(0);
    int64_t read = reads_beyond(*arguments), written = 0;
    operands_of(*arguments, list);
    for (const operand &o : list.list())
        (o.is_write ? written : read) += (int64_t)(o.end - o.begin);
    std::lock_guard<std::mutex> guard(lock);
    int64_t before = launches_of_inner();
    lk_gpu_status status = (inner->*Kernel)(stream, arguments);
    int64_t launches = launches_of_inner() - before;
    fprintf(counts, "kernel %zu %s %lld %lld %lld %.0f\n", number_of(stream), name,
            (long long)launches_of(*arguments, launches), (long long)read, (long long)written, flops_of(*arguments));
    return status;
}

#define LK_GPU_KERNEL(name)                                                                 \
    static lk_gpu_status name(lk_gpu_stream *stream, const lk_gpu_##name *arguments)        \
    {                                                                                       \
        return count_kernel<&lk_gpu_driver::name, lk_gpu_##name>(#name, stream, arguments); \
    }
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL

static lk_gpu_status count_copy(lk_gpu_stream *stream, void *to, const void *from, size_t bytes,
                                lk_gpu_direction direction)
{
    static const char *const directions[] = {"gpu", "to_host", "from_host"};
    std::lock_guard<std::mutex> guard(lock);
    fprintf(counts, "copy %zu %s %zu\n", number_of(stream), directions[direction], bytes);
    return inner->copy(stream, to, from, bytes, direction);
}

static lk_gpu_status count_capture_begin(lk_gpu_stream *stream)
{
    std::lock_guard<std::mutex> guard(lock);
    fprintf(counts, "capture %zu\n", number_of(stream));
    return inner->capture_begin(stream);
}

static lk_gpu_status count_capture_end(lk_gpu_stream *stream, lk_gpu_graph **graph)
{
    lk_gpu_status status = inner->capture_end(stream, graph);
    std::lock_guard<std::mutex> guard(lock);
    fprintf(counts, "captured %p\n", (void *)*graph);
    return status;
}

static lk_gpu_status count_graph_launch(lk_gpu_stream *stream, lk_gpu_graph *graph)
{
    std::lock_guard<std::mutex> guard(lock);
    fprintf(counts, "launch %p\n", (void *)graph);
    return inner->graph_launch(stream, graph);
}

static lk_gpu_status count_event_record(lk_gpu_stream *stream, lk_gpu_event *event)
{
    std::lock_guard<std::mutex> guard(lock);
    fprintf(counts, "record %zu %p\n", number_of(stream), (void *)event);
    return inner->event_record(stream, event);
}

static lk_gpu_status count_event_follow(lk_gpu_stream *stream, lk_gpu_event *event)
{
    std::lock_guard<std::mutex> guard(lock);
    fprintf(counts, "follow %zu %p\n", number_of(stream), (void *)event);
    return inner->event_follow(stream, event);
}

/* Names of operators and steps, in the order of their beginnings and ends. */
static void count_range(const char *name)
{
    std::lock_guard<std::mutex> guard(lock);
    fprintf(counts, name ? "range %s\n" : "end\n", name);
}

static lk_gpu_driver table;

extern "C" __attribute__((visibility("default"))) const lk_gpu_driver *lk_gpu_driver_table(void)
{
    const char *plugin = getenv("LOCKSTEP_CUDA_RECORDED"), *path = getenv("LOCKSTEP_CUDA_COUNTS");
    void *library = plugin ? dlopen(plugin, RTLD_NOW | RTLD_LOCAL) : nullptr;
    void *symbol = library ? dlsym(library, LK_GPU_DRIVER_SYMBOL) : nullptr;
    void *launches = library ? dlsym(library, "lk_gpu_emulated_launches") : nullptr;
    inner = symbol ? ((lk_gpu_driver_fn)symbol)() : nullptr;
    if (!inner || !launches || inner->interface != LK_GPU_INTERFACE || inner->size != sizeof table) {
        fprintf(stderr, "cuda counter: LOCKSTEP_CUDA_RECORDED=%s: no emulated plug-in of this version\n",
                plugin ? plugin : "");
        return nullptr;
    }
    counts = path ? fopen(path, "w") : nullptr;
    if (!counts) {
        fprintf(stderr, "cuda counter: cannot write LOCKSTEP_CUDA_COUNTS=%s\n", path ? path : "");
        return nullptr;
    }
    launches_of_inner = (int64_t(*)(void))launches;
    table = *inner;
    table.copy = count_copy;
    table.range = count_range;
    table.capture_begin = count_capture_begin;
    table.capture_end = count_capture_end;
    table.graph_launch = count_graph_launch;
    table.event_record = count_event_record;
    table.event_follow = count_event_follow;
#define LK_GPU_KERNEL(name) table.name = name;
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL
    return &table;
}
