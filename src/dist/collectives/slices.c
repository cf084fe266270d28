#include "dist/collectives/slices.h"

#include "base/abandon.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "dist/collectives/exchange_run.h"
#include "dist/collectives/host_gather.h"
#include "lockstep/ops.h"

#include <string.h>

struct lk_slices {
    const lk_strategy *strategy;
    int n;
    lk_tensor *rows[LK_MAX_DEVICES], *own[LK_MAX_DEVICES];
    lk_exchange_plan *plan; /* by which slices go to the devices of other processes; NULL: there is one process, or the
                               devices compile */
};

static bool slices_compile(const lk_slices *s)
{
    return s->strategy->devices[0]->backend->modules;
}

/* --- slices ------------------------------------------------------------------------------------------------------- */

static void slice_release_row(void *row)
{
    lk_tensor_release(row);
}

/* The engine orders accesses to a storage. If slices were views, device 1 could copy device 0's only after device 0 had
 * copied device 1's, and so on: one device after the other. A storage of its own is written by the update and read by
 * other devices only; the device's own queue orders it with the row. */
static lk_tensor *slice_over(lk_tensor *row, lk_range slice)
{
    if (lk_tensor_wait(row) != LK_OK || lk__tensor_make_plain(row) != LK_OK)
        return NULL;
    float *elements = lk__data(row);
    lk_tensor *over = lk_tensor_wrap(lk_tensor_device(row), LK_F32, LK_SHAPE(slice.end - slice.begin),
                                     elements + slice.begin, slice_release_row, row);
    if (over)
        lk_tensor_retain(row);
    return over;
}

static lk_tensor *slice_new(lk_tensor *row, lk_range slice)
{
    lk_scope_begin();
    lk_tensor *made =
        lk_tensor_device(row)->backend->offload ? lk_slice(row, 0, slice.begin, slice.end) : slice_over(row, slice);
    lk_tensor_retain(made);
    lk_scope_end();
    return made;
}

/* --- in a process ------------------------------------------------------------------------------------------------- */

/* An entry of the device's queue that waits until no other device reads the slice. Whoever writes the row later, be it
 * the host, waits for it. */
typedef struct slice_fence {
    lk_task task;
    lk_tensor *row, *slice;
    lk_storage *writes[2]; /* of the slice and of the row */
} slice_fence;

static lk_status slice_fence_run(lk_task *task)
{
    (void)task;
    return LK_OK;
}

static void slice_fence_release(lk_task *task)
{
    slice_fence *fence = (slice_fence *)task;
    lk_device *device = task->device;
    lk_tensor_release(fence->row);
    lk_tensor_release(fence->slice);
    lk__device_free(device, fence);
    lk__device_release_memory(device);
}

/* It reads the slice too, so that a failed update also fails what its own device makes of the row. */
static lk_status slice_push_fence(lk_tensor *row, lk_tensor *slice)
{
    lk_device *device = lk_tensor_device(row);
    if (row->storage == slice->storage)
        return LK_OK;
    slice_fence *fence = lk__device_calloc(device, 1, sizeof *fence);
    if (!fence)
        return LK_ERR_MEMORY;
    *fence = (slice_fence){
        .row = lk_tensor_retain(row), .slice = lk_tensor_retain(slice), .writes = {slice->storage, row->storage}};
    fence->task = (lk_task){.device = device,
                            .reads = fence->writes,
                            .writes = fence->writes,
                            .n_reads = 1,
                            .n_writes = 2,
                            .run = slice_fence_run,
                            .release = slice_fence_release};
    lk__device_retain_memory(device);
    lk_status status = lk__engine_push_task(&fence->task);
    if (status != LK_OK)
        slice_fence_release(&fence->task);
    return status;
}

static lk_status slices_copy(const lk_slices *s, int own)
{
    for (int d = 0; d < s->n; d++) {
        lk_range slice = lk__slices_range(s, d);
        if (d == own || slice.begin == slice.end)
            continue;
        lk_tensor *part = lk_slice(s->rows[own], 0, slice.begin, slice.end);
        LK_TRY(part ? lk_copy_into(part, s->own[d]) : lk_error_status());
    }
    return LK_OK;
}

static lk_status slices_copy_all(const lk_slices *s)
{
    for (int d = 0; d < s->n; d++)
        LK_TRY(slices_copy(s, d));
    for (int d = 0; d < s->n; d++)
        LK_TRY(slice_push_fence(s->rows[d], s->own[d]));
    return LK_OK;
}

/* --- devices that compile ----------------------------------------------------------------------------------------- */

/* Sets tensors[0 … *n) to the slices of all ranks, in their order, that are not empty. Those of this process are copied
 * out of the rows. */
static lk_status slices_list(const lk_slices *s, lk_gathered *tensors, int64_t *n)
{
    const lk_strategy *strategy = s->strategy;
    int64_t row = lk_tensor_count(s->rows[0]);
    for (int r = 0; r < strategy->ranks; r++) {
        lk_range slice = lk__exchange_slice(row, r, strategy->ranks);
        int d = r - strategy->first;
        lk_gathered *t = &tensors[*n];
        if (slice.begin == slice.end)
            continue;
        *t = (lk_gathered){.rank = r, .dtype = LK_F32, .shape = LK_SHAPE(slice.end - slice.begin)};
        if (d >= 0 && d < s->n && !(t->value = lk_copy(s->own[d], strategy->devices[d])))
            return lk_error_status();
        (*n)++;
    }
    return LK_OK;
}

/* Such a device writes whole tensors, so each one joins all slices. parts: scratch for n tensors. */
static lk_status slices_join(const lk_slices *s, const lk_gathered *tensors, int64_t n, lk_tensor **parts)
{
    for (int d = 0; d < s->n; d++) {
        lk_device *device = s->strategy->devices[d];
        for (int64_t i = 0; i < n; i++) {
            lk_tensor *slice = tensors[i].value ? tensors[i].value : tensors[i].copy;
            parts[i] = lk_tensor_device(slice) == device ? slice : lk_copy(slice, device);
            if (!parts[i])
                return lk_error_status();
        }
        lk_tensor *joined = lk_concat(parts, (int)n, 0);
        LK_TRY(joined ? lk_copy_into(s->rows[d], joined) : lk_error_status());
    }
    return LK_OK;
}

static lk_status slices_gather_whole(const lk_slices *s)
{
    size_t ranks = (size_t)s->strategy->ranks;
    int64_t n = 0;
    lk_gathered *tensors = lk__calloc(ranks, sizeof *tensors);
    lk_tensor **parts = lk__calloc(ranks, sizeof(lk_tensor *));
    lk_status status = tensors && parts ? slices_list(s, tensors, &n) : LK_ERR_MEMORY;
    if (status == LK_OK && lk__slices_span_processes(s))
        status = lk__host_gather(LK_HERE, s->strategy, tensors, n);
    if (status == LK_OK)
        status = slices_join(s, tensors, n, parts);
    for (int64_t i = 0; i < n; i++)
        lk_tensor_release(tensors[i].copy);
    LK_FREE_ALL(tensors, parts);
    return status;
}

/* --- between processes -------------------------------------------------------------------------------------------- */

/* An entry of the links' queue that runs the plan on the rows. */
typedef struct slice_exchange {
    lk_task task;
    lk_device *home; /* whose memory holds this entry */
    lk_exchange_links links;
    const lk_exchange_group *group;
    lk_exchange_plan *plan; /* one reference, like the tensors */
    int n;
    lk_abandoned abandoned;
    bool is_kept; /* its rows for the rest of the process, because the transport may still write to them */
    lk_tensor *rows[LK_MAX_DEVICES], *own[LK_MAX_DEVICES];
    lk_storage *reads[LK_MAX_DEVICES], *writes[LK_MAX_DEVICES];
    float *memory[LK_MAX_DEVICES];
    lk_transfer list[];
} slice_exchange;

static void slice_exchange_leave_out(lk_task *task, lk_status status, const char *why)
{
    lk__group_give_up(((slice_exchange *)task)->group->processes, status, why);
}

static lk_status slice_exchange_move(slice_exchange *e)
{
    LK_TRY(lk__group_check(e->group->processes));
    lk__activity_set(LK_ACTIVITY_WAIT_REMOTE, "exchange");
    for (int d = 0; d < e->n; d++)
        e->memory[d] = lk__data(e->rows[d]);
    /* The slices need not be equally long, as the transport's own gather has them. */
    return lk__exchange_run(&(lk_exchange_run){.plan = e->plan,
                                               .transport = e->links.transport,
                                               .links = e->links.queue,
                                               .table = e->links.table,
                                               .group = e->group,
                                               .dtype = LK_F32,
                                               .along_tree = true,
                                               .buffers = e->memory,
                                               .sums = e->memory,
                                               .list = e->list});
}

static lk_status slice_exchange_run(lk_task *task)
{
    slice_exchange *e = (slice_exchange *)task;
    lk_status status = slice_exchange_move(e);
    e->is_kept = status != LK_OK && e->links.transport->is_late;
    if (e->is_kept)
        lk__abandon(&e->abandoned);
    if (status != LK_OK)
        slice_exchange_leave_out(task, status, lk_error_message());
    return status;
}

static void slice_exchange_release(lk_task *task)
{
    slice_exchange *e = (slice_exchange *)task;
    if (e->is_kept)
        return;
    for (int d = 0; d < e->n; d++) {
        lk_tensor_release(e->rows[d]);
        lk_tensor_release(e->own[d]);
    }
    lk__exchange_plan_release(e->plan);
    lk_device *home = e->home;
    lk__device_free(home, e);
    lk__device_release_memory(home);
}

/* It reads the slices, so that it waits for their updates, and so that the next ones wait for it. */
static lk_status slices_push_exchange(const lk_slices *s)
{
    lk_device *home = s->strategy->devices[0];
    size_t list = lk__exchange_transfers(s->plan, 1) * sizeof(lk_transfer);
    slice_exchange *e = lk__device_calloc(home, 1, sizeof *e + list);
    if (!e)
        return LK_ERR_MEMORY;
    lk__device_retain_memory(home);
    e->home = home;
    e->links = lk__links_allreduce_describe(s->strategy->allreduce);
    e->group = &s->strategy->exchange_group;
    e->plan = s->plan;
    lk__refcount_retain(&e->plan->references);
    e->n = s->n;
    e->task = (lk_task){.device = e->links.queue,
                        .reads = e->reads,
                        .writes = e->writes,
                        .n_writes = e->n,
                        .run = slice_exchange_run,
                        .leave_out = slice_exchange_leave_out,
                        .release = slice_exchange_release};
    for (int d = 0; d < e->n; d++) {
        e->rows[d] = lk_tensor_retain(s->rows[d]);
        e->own[d] = lk_tensor_retain(s->own[d]);
        e->writes[d] = e->rows[d]->storage;
        if (e->own[d]->storage != e->rows[d]->storage)
            e->reads[e->task.n_reads++] = e->own[d]->storage;
    }
    lk_status status = lk__engine_push_task(&e->task);
    if (status != LK_OK)
        slice_exchange_release(&e->task);
    return status;
}

/* The other processes push the same, so a failure here must end them too. */
static lk_status slices_exchange(const lk_slices *s)
{
    lk_status status = slices_compile(s) ? slices_gather_whole(s) : slices_push_exchange(s);
    if (status != LK_OK)
        lk__group_give_up(s->strategy->group, status, lk_error_message());
    return status;
}

static lk_range slices_of_process(const lk_slices *s, int process)
{
    const int *starts = s->strategy->starts;
    int64_t row = lk_tensor_count(s->rows[0]);
    return (lk_range){lk__exchange_slice(row, starts[process], s->strategy->ranks).begin,
                      lk__exchange_slice(row, starts[process + 1] - 1, s->strategy->ranks).end};
}

/* In pieces, because a broadcast holds a copy of what it sends or receives. */
static lk_status slices_broadcast(lk_group *group, int from, float *values, int64_t n)
{
    enum { PIECE = 1 << 18 };
    for (int64_t i = 0; i < n; i += PIECE)
        LK_TRY(lk__group_broadcast(group, from, values + i, (size_t)lk__min(n - i, PIECE) * sizeof *values));
    return LK_OK;
}

lk_status lk__slices_complete(const lk_slices *s, lk_range part, float *values, lk_status read)
{
    lk_group *group = s->strategy->group;
    if (!lk__slices_span_processes(s))
        return read;
    if (read != LK_OK)
        lk__group_give_up(group, read, lk_error_message());
    for (int p = 0; p < lk__group_ranks(group) && read == LK_OK; p++) {
        lk_range slices = slices_of_process(s, p);
        int64_t begin = lk__max(part.begin, slices.begin), end = lk__min(part.end, slices.end);
        if (begin < end)
            read = slices_broadcast(group, p, values + (begin - part.begin), end - begin);
    }
    return read;
}

/* --- making, gathering -------------------------------------------------------------------------------------------- */

/* In a plan without nodes the shards say nothing; each rank has one. */
static lk_status slices_make_plan(lk_slices *s)
{
    const lk_strategy *strategy = s->strategy;
    int64_t row = lk_tensor_count(s->rows[0]);
    bool along_tree =
        lk__links_allreduce_way(strategy->allreduce, row * (int64_t)sizeof(float), false) == LK_EXCHANGE_TREE;
    lk_range *owned = lk__calloc((size_t)strategy->ranks, sizeof *owned);
    if (!owned)
        return LK_ERR_MEMORY;
    for (int r = 0; r < strategy->ranks; r++)
        owned[r] = (lk_range){r, r + 1};
    lk_exchange_plan_opts opts = {.owned = owned,
                                  .ranks = strategy->ranks,
                                  .row = row,
                                  .in_place = true,
                                  .flat = along_tree ? 2 : strategy->ranks,
                                  .first = strategy->first,
                                  .n = strategy->n_devices};
    lk_status status = lk__exchange_plan_new(&opts, &s->plan);
    lk__free(owned);
    return status;
}

lk_status lk__slices_new(const lk_strategy *strategy, lk_tensor *const *rows, lk_slices **slices)
{
    lk_slices *s = lk__calloc(1, sizeof *s);
    *slices = NULL;
    if (!s)
        return LK_ERR_MEMORY;
    s->strategy = strategy;
    s->n = strategy->n_devices;
    memcpy(s->rows, rows, (size_t)s->n * sizeof *rows);
    lk_status status = LK_OK;
    for (int d = 0; d < s->n && status == LK_OK; d++) {
        s->own[d] = slice_new(rows[d], lk__slices_range(s, d));
        status = s->own[d] ? LK_OK : lk_error_status();
    }
    if (status == LK_OK && lk__slices_span_processes(s) && !slices_compile(s))
        status = slices_make_plan(s);
    if (status == LK_OK)
        *slices = s;
    else
        lk__slices_release(s);
    return status;
}

void lk__slices_release(lk_slices *s)
{
    if (!s)
        return;
    for (int d = 0; d < s->n; d++)
        lk_tensor_release(s->own[d]);
    lk__exchange_plan_release(s->plan);
    lk__free(s);
}

lk_range lk__slices_range(const lk_slices *s, int d)
{
    return lk__exchange_slice(lk_tensor_count(s->rows[d]), s->strategy->first + d, s->strategy->ranks);
}

lk_tensor *lk__slices_own(const lk_slices *s, int d)
{
    return s->own[d];
}

bool lk__slices_span_processes(const lk_slices *s)
{
    return s->strategy->ranks > s->n;
}

int lk__slices_process(const lk_slices *s)
{
    return lk__slices_span_processes(s) ? lk__group_rank(s->strategy->group) : 0;
}

lk_status lk__slices_gather(lk_slices *s)
{
    lk_phase before = lk__phase_set(LK_PHASE_EXCHANGE);
    lk_scope_begin();
    lk_status status = lk__slices_span_processes(s) ? slices_exchange(s)
                       : slices_compile(s)          ? slices_gather_whole(s)
                                                    : slices_copy_all(s);
    lk_scope_end();
    lk__phase_set(before);
    return status;
}
