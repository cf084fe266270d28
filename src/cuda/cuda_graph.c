/* Branches and graphs. A branch has a stream of its own; events fork it from the device's stream, the trunk, and join
 * it again. A graph records the work that is started between its begin and end, on the trunk and on the branches forked
 * in between. */
#include "cuda/cuda_graph.h"

#include "base/mem.h"
#include "cuda/cuda.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_together.h"

/* --- branches ----------------------------------------------------------------------------------------------------- */

static lk_status cuda_graph_open_branch(lk_cuda *cuda, lk_cuda_branch *branch)
{
    const lk_gpu_driver *driver = cuda->driver;
    if (!cuda->fork)
        LK_TRY(lk__cuda_check(driver, driver->event_new(cuda->trunk, &cuda->fork)));
    if (!branch->stream)
        LK_TRY(lk__cuda_check(driver, driver->stream_open_branch(cuda->trunk, &branch->stream)));
    if (!branch->done)
        LK_TRY(lk__cuda_check(driver, driver->event_new(branch->stream, &branch->done)));
    return LK_OK;
}

/* Makes later work of the branch wait for the trunk. */
static lk_status cuda_graph_fork_branch(lk_cuda *cuda, lk_cuda_branch *branch)
{
    const lk_gpu_driver *driver = cuda->driver;
    if (branch->is_open)
        return LK_OK;
    LK_TRY(cuda_graph_open_branch(cuda, branch));
    LK_TRY(lk__cuda_check(driver, driver->event_record(cuda->trunk, cuda->fork)));
    LK_TRY(lk__cuda_check(driver, driver->event_follow(branch->stream, cuda->fork)));
    branch->is_open = true;
    return LK_OK;
}

/* Makes later work of the trunk wait for all branches. */
static lk_status cuda_graph_join_branches(lk_cuda *cuda)
{
    const lk_gpu_driver *driver = cuda->driver;
    lk_status status = LK_OK;
    for (int i = 0; i < LK_MAX_BRANCHES; i++) {
        lk_cuda_branch *branch = &cuda->branches[i];
        if (!branch->is_open)
            continue;
        branch->is_open = false;
        lk_status joined = lk__cuda_check(driver, driver->event_record(branch->stream, branch->done));
        if (joined == LK_OK)
            joined = lk__cuda_check(driver, driver->event_follow(cuda->trunk, branch->done));
        status = status == LK_OK ? joined : status;
    }
    return status;
}

/* After a failure calls run on the trunk. */
static lk_status cuda_graph_enter_branch(lk_device *device, int branch)
{
    lk_cuda *cuda = device->state;
    cuda->stream = cuda->trunk;
    if (branch == 0)
        return cuda_graph_join_branches(cuda);
    LK_TRY(cuda_graph_fork_branch(cuda, &cuda->branches[branch - 1]));
    cuda->stream = cuda->branches[branch - 1].stream;
    return LK_OK;
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

typedef struct cuda_graph {
    lk_gpu_graph *graph;
    bool reads_step;
} cuda_graph;

static lk_status graph_begin(lk_device *device)
{
    lk_cuda *cuda = device->state;
    if (!cuda->step) {
        cuda->step = lk__cuda_alloc(device, sizeof *cuda->step);
        if (!cuda->step)
            return lk_error_status();
    }
    pthread_mutex_lock(&cuda->capturing);
    lk_status status = lk__cuda_check(cuda->driver, cuda->driver->capture_begin(cuda->trunk));
    cuda->is_capturing = status == LK_OK;
    cuda->captured_step = false;
    if (status != LK_OK)
        pthread_mutex_unlock(&cuda->capturing);
    return status;
}

static void free_graph(lk_device *device, void *kept)
{
    lk_cuda *cuda = device->state;
    cuda_graph *graph = kept;
    if (graph && graph->graph)
        cuda->driver->graph_free(graph->graph);
    lk__free(graph);
}

static lk_status graph_end(lk_device *device, void **kept)
{
    lk_cuda *cuda = device->state;
    *kept = NULL;
    if (!cuda->is_capturing)
        return LK_OK;
    cuda_graph *made = lk__calloc(1, sizeof *made);
    lk_gpu_graph *graph = NULL;
    cuda->is_capturing = false;
    lk_status status = lk__cuda_check(cuda->driver, cuda->driver->capture_end(cuda->trunk, &graph));
    pthread_mutex_unlock(&cuda->capturing);
    if (made) {
        *made = (cuda_graph){graph, cuda->captured_step};
    } else if (graph) {
        cuda->driver->graph_free(graph);
    }
    if (status == LK_OK && made)
        *kept = made;
    else
        free_graph(device, made);
    return made ? status : LK_ERR_MEMORY;
}

static lk_status graph_launch(lk_device *device, void *kept, uint64_t step)
{
    lk_cuda *cuda = device->state;
    const cuda_graph *graph = kept;
    if (graph->reads_step)
        LK_TRY(lk__cuda_offload.write(device, cuda->step, &step, sizeof step, LK_I64));
    return lk__cuda_check(cuda->driver, cuda->driver->graph_launch(cuda->trunk, graph->graph));
}

static bool cuda_graph_is_words(const lk_graph_copy *copy)
{
    return ((uintptr_t)copy->to | (uintptr_t)copy->from | copy->bytes) % sizeof(float) == 0;
}

/* One kernel makes up to LK_GPU_COPIES copies of whole words. */
static lk_status cuda_graph_copy(lk_device *device, const lk_graph_copy *copies, int n)
{
    lk_cuda *cuda = device->state;
    const lk_gpu_driver *driver = cuda->driver;
    lk_gpu_copies words = {.n = 0};
    for (int i = 0; i < n; i++) {
        const lk_graph_copy *c = &copies[i];
        if (!cuda_graph_is_words(c)) {
            LK_TRY(lk__cuda_check(driver, driver->copy(cuda->stream, c->to, c->from, c->bytes, LK_GPU_TO_GPU)));
            continue;
        }
        if (words.n == LK_GPU_COPIES) {
            LK_TRY(lk__cuda_check(driver, driver->copies(cuda->stream, &words)));
            words.n = 0;
        }
        words.to[words.n] = c->to;
        words.from[words.n] = c->from;
        words.count[words.n++] = (int64_t)(c->bytes / sizeof(float));
    }
    return words.n > 0 ? lk__cuda_check(driver, driver->copies(cuda->stream, &words)) : LK_OK;
}

void lk__cuda_graphs_close(lk_cuda *cuda)
{
    const lk_gpu_driver *driver = cuda->driver;
    for (int i = 0; i < LK_MAX_BRANCHES; i++) {
        if (cuda->branches[i].done)
            driver->event_free(cuda->branches[i].done);
        driver->stream_close(cuda->branches[i].stream);
    }
    if (cuda->fork)
        driver->event_free(cuda->fork);
    if (cuda->step)
        driver->alloc_free(cuda->trunk, cuda->step);
}

const lk_graphs lk__cuda_graphs = {
    .branch = cuda_graph_enter_branch,
    .begin = graph_begin,
    .end = graph_end,
    .launch = graph_launch,
    .kind = lk__cuda_kind,
    .together = lk__cuda_together,
    .copy = cuda_graph_copy,
    .free = free_graph,
};
