/* Branches and graphs. A branch has a stream of its own; events fork it from the device's stream, the trunk, and join
 * it again. A graph records the work that is started between its begin and end, on the trunk and on the branches forked
 * in between. */
#include "cuda/cuda_graph.h"

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
lk_status lk__cuda_fork(lk_cuda *cuda, int lane)
{
    cuda->stream = cuda->trunk;
    if (lane == 0)
        return LK_OK;
    LK_TRY(cuda_graph_fork_branch(cuda, &cuda->branches[lane - 1]));
    cuda->stream = cuda->branches[lane - 1].stream;
    return LK_OK;
}

lk_status lk__cuda_join(lk_cuda *cuda)
{
    cuda->stream = cuda->trunk;
    return cuda_graph_join_branches(cuda);
}

static lk_status cuda_graph_enter_branch(lk_device *device, int branch)
{
    return branch > 0 ? lk__cuda_fork(device->state, branch) : lk__cuda_join(device->state);
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static lk_status graph_begin(lk_device *device)
{
    lk_cuda *cuda = device->state;
    pthread_mutex_lock(&cuda->capturing);
    lk_status status = lk__cuda_check(cuda->driver, cuda->driver->capture_begin(cuda->trunk));
    cuda->is_capturing = status == LK_OK;
    if (status != LK_OK)
        pthread_mutex_unlock(&cuda->capturing);
    return status;
}

static void free_graph(lk_device *device, void *graph)
{
    const lk_cuda *cuda = device->state;
    if (graph)
        cuda->driver->graph_free(graph);
}

static lk_status graph_end(lk_device *device, void **kept)
{
    lk_cuda *cuda = device->state;
    *kept = NULL;
    if (!cuda->is_capturing)
        return LK_OK;
    lk_gpu_graph *graph = NULL;
    cuda->is_capturing = false;
    lk_status status = lk__cuda_check(cuda->driver, cuda->driver->capture_end(cuda->trunk, &graph));
    pthread_mutex_unlock(&cuda->capturing);
    if (status == LK_OK)
        *kept = graph;
    else
        free_graph(device, graph);
    return status;
}

static lk_status graph_launch(lk_device *device, void *graph)
{
    const lk_cuda *cuda = device->state;
    return lk__cuda_check(cuda->driver, cuda->driver->graph_launch(cuda->trunk, graph));
}

static bool cuda_graph_is_words(const lk_graph_copy *copy)
{
    return ((uintptr_t)copy->to | (uintptr_t)copy->from | copy->bytes) % sizeof(float) == 0;
}

static lk_status cuda_graph_start_words(const lk_cuda *cuda, lk_gpu_copies *words)
{
    bool is_empty = words->n == 0 && !words->step_to;
    lk_gpu_status status = is_empty ? LK_GPU_OK : cuda->driver->copies(cuda->stream, words);
    words->n = 0;
    words->step_to = NULL;
    return lk__cuda_check(cuda->driver, status);
}

/* One kernel makes up to LK_GPU_COPIES copies of whole words, and writes the step, which costs no copy of its own. */
lk_status lk__cuda_copy_all(lk_device *device, const lk_graph_copy *copies, int n, const uint64_t *step)
{
    lk_cuda *cuda = device->state;
    const lk_gpu_driver *driver = cuda->driver;
    lk_gpu_copies words = {.step = step ? *step : 0};
    if (step && !cuda->step) {
        cuda->step = lk__cuda_alloc(device, sizeof *cuda->step);
        if (!cuda->step)
            return lk_error_status();
    }
    words.step_to = step ? cuda->step : NULL;
    for (int i = 0; i < n; i++) {
        const lk_graph_copy *c = &copies[i];
        if (!cuda_graph_is_words(c)) {
            LK_TRY(lk__cuda_check(driver, driver->copy(cuda->stream, c->to, c->from, c->bytes, LK_GPU_TO_GPU)));
            continue;
        }
        if (words.n == LK_GPU_COPIES)
            LK_TRY(cuda_graph_start_words(cuda, &words));
        words.to[words.n] = c->to;
        words.from[words.n] = c->from;
        words.count[words.n++] = (int64_t)(c->bytes / sizeof(float));
    }
    return cuda_graph_start_words(cuda, &words);
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
    .copy = lk__cuda_copy_all,
    .free = free_graph,
};
