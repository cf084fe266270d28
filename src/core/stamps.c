#include "core/stamps.h"
#include "base/minmax.h"
#include "core/trace.h"

enum { MAX_CALLS = LK_STAMPS / 2 };

typedef struct lk_stamps {
    int n;
    lk_trace_noted calls[MAX_CALLS]; /* call i is between slots 2 i and 2 i + 1 */
    int64_t started[MAX_CALLS];
    int64_t times[LK_STAMPS];
} lk_stamps;

/* Running out of memory here must not fail the call: the recording then shows when the call was started. */
static bool stamps_new(lk_device *device)
{
    device->stamps = lk__calloc(1, sizeof *device->stamps);
    if (!device->stamps)
        lk_error_clear();
    return device->stamps;
}

/* While the device has a hold, its calls may be captured in a graph, and a graph has no times of its calls. */
bool lk__stamps_are_used(lk_device *device)
{
    const lk_offload *offload = device->backend->offload;
    return offload && offload->stamp && !device->hold && !lk__engine_is_sync() &&
           (device->stamps || stamps_new(device));
}

lk_status lk__stamps_begin(lk_device *device)
{
    lk_stamps *stamps = device->stamps;
    if (stamps->n == MAX_CALLS)
        LK_TRY(lk__stamps_trace(device));
    return device->backend->offload->stamp(device, 2 * stamps->n);
}

lk_status lk__stamps_end(lk_device *device, const lk_call *call, int64_t started)
{
    lk_stamps *stamps = device->stamps;
    LK_TRY(device->backend->offload->stamp(device, 2 * stamps->n + 1));
    stamps->calls[stamps->n] = lk__trace_note_call(call);
    stamps->started[stamps->n++] = started;
    return LK_OK;
}

/* The device's clock may be off by microseconds. So a begin is moved if it lies before the call was started, or before
 * the end of the previous call. */
lk_status lk__stamps_trace(lk_device *device)
{
    lk_stamps *stamps = device->stamps;
    int n = stamps ? stamps->n : 0;
    if (n == 0)
        return device->backend->offload->drain(device);
    stamps->n = 0;
    LK_TRY(device->backend->offload->read_stamps(device, 2 * n, stamps->times));
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        int64_t begin = lk__max(lk__max(stamps->times[2 * i], stamps->started[i]), end);
        end = lk__max(stamps->times[2 * i + 1], begin);
        lk__trace_add_call(&stamps->calls[i], begin, end);
    }
    return LK_OK;
}
