#include "dist/collectives/slices.h"

#include "base/status.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "lockstep/ops.h"

enum { LINE = 16 }; /* elements */

lk_range lk__slice_of(const lk_strategy *strategy, int64_t elements, int d)
{
    lk_range lines = lk_part(elements / LINE, strategy->n_devices, d);
    return (lk_range){lines.begin * LINE, lines.end * LINE};
}

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

lk_tensor *lk__slice_new(lk_tensor *row, lk_range slice)
{
    lk_scope_begin();
    lk_tensor *made =
        lk_tensor_device(row)->backend->offload ? lk_slice(row, 0, slice.begin, slice.end) : slice_over(row, slice);
    lk_tensor_retain(made);
    lk_scope_end();
    return made;
}

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

static lk_status slices_copy(const lk_strategy *strategy, lk_tensor *row, lk_tensor *const *slices, int own)
{
    for (int d = 0; d < strategy->n_devices; d++) {
        lk_range slice = lk__slice_of(strategy, lk_tensor_count(row), d);
        if (d == own || slice.begin == slice.end)
            continue;
        lk_tensor *part = lk_slice(row, 0, slice.begin, slice.end);
        LK_TRY(part ? lk_copy_into(part, slices[d]) : lk_error_status());
    }
    return LK_OK;
}

lk_status lk__slices_gather(const lk_strategy *strategy, lk_tensor *const *rows, lk_tensor *const *slices)
{
    lk_status status = LK_OK;
    lk_phase before = lk__phase_set(LK_PHASE_EXCHANGE);
    lk_scope_begin();
    for (int d = 0; d < strategy->n_devices && status == LK_OK; d++)
        status = slices_copy(strategy, rows[d], slices, d);
    for (int d = 0; d < strategy->n_devices && status == LK_OK; d++)
        status = slice_push_fence(rows[d], slices[d]);
    lk_scope_end();
    lk__phase_set(before);
    return status;
}
