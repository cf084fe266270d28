#include "lockstep/device.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "core/backend.h"
#include "core/device_spec.h"
#include "core/engine.h"
#include "core/execute.h"
#include "core/tuning.h"

#include <stdio.h>
#include <string.h>

void lk__device_retain_memory(lk_device *device)
{
    lk__refcount_retain(&device->references);
}

void lk__device_release_memory(lk_device *device)
{
    if (!lk__refcount_release(&device->references))
        return;
    if (device->state)
        device->backend->close(device, device->state);
    lk__allocator_put(device->allocator, device->arena);
    lk__allocator_free(device->allocator);
    lk__allocator_free(device->bookkeeping);
    for (int i = 0; i < device->n_tunings; i++)
        lk_tuning_release(device->tunings[i]);
    lk__free(device->tunings);
    lk__free(device->stamps);
    lk__free_aligned(device);
}

lk_status lk__device_arena_take(lk_device *device, size_t bytes, void **data)
{
    *data = NULL;
    if (device->arena_taken)
        return LK_OK;
    if (!device->arena || device->arena->size < bytes) {
        lk__allocator_drop(device->allocator, device->arena);
        device->arena = NULL;
        LK_TRY(lk__allocator_get(device->allocator, bytes, &device->arena));
    }
    device->arena_taken = true;
    *data = device->arena->data;
    return LK_OK;
}

void lk__device_arena_give_back(lk_device *device)
{
    device->arena_taken = false;
}

/* --- bookkeeping memory ------------------------------------------------------------------------------------------- */

/* Larger blocks are not cached: malloc maps each of them separately and returns it to the system when it is freed. */
enum { MOST_KEPT = 1 << 20 };

/* The header in front of the memory, as long as a cache line. */
typedef union bookkeeping_head {
    lk_block *block; /* NULL: not from the cache */
    unsigned char line[LK_ALIGNMENT];
} bookkeeping_head;

static bookkeeping_head *device_bookkeeping_alloc(lk_device *device, size_t bytes)
{
    lk_block *block = NULL;
    bookkeeping_head *head;
    if (bytes <= MOST_KEPT && lk__mem_may_keep()) {
        if (lk__allocator_get(device->bookkeeping, sizeof *head + bytes, &block) != LK_OK)
            return NULL;
        head = block->data;
    } else {
        head = lk__alloc_aligned(sizeof *head + bytes);
    }
    if (head)
        head->block = block;
    return head;
}

void *lk__device_calloc(lk_device *device, size_t count, size_t size)
{
    size_t bytes;
    if (!lk__mul_size(count, size, &bytes) || bytes > PTRDIFF_MAX) {
        lk__fail(LK_ERR_MEMORY, "out of memory: %zu items of %zu bytes exceed the address space", count, size);
        return NULL;
    }
    bookkeeping_head *head = device_bookkeeping_alloc(device, bytes);
    return head ? memset(head + 1, 0, bytes) : NULL;
}

void lk__device_free(lk_device *device, void *memory)
{
    bookkeeping_head *head = memory ? (bookkeeping_head *)memory - 1 : NULL;
    if (head && head->block)
        lk__allocator_put(device->bookkeeping, head->block);
    else
        lk__free_aligned(head);
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

const lk_backend *lk__backend_of_kind(const char *kind)
{
    for (int i = 0; lk__backends[i]; i++)
        if (strcmp(lk__backends[i]->kind, kind) == 0)
            return lk__backends[i];
    return NULL;
}

/* Makes a device without memory or a queue; device_start gives it both. */
static lk_device *device_new(const lk_backend *backend, int index)
{
    lk_device *device = lk__alloc_aligned(sizeof *device);
    if (!device)
        return NULL;
    memset(device, 0, sizeof *device);
    lk__refcount_init(&device->references);
    lk__refcount_init(&device->users);
    device->backend = backend;
    device->index = index;
    return device;
}

/* Gives the device its memory and its queue. Releases the device on failure. */
static lk_status device_start(lk_device *device, lk_device **out)
{
    lk_memory_source source = {device->backend->alloc, device->backend->free, device, device->backend->modules != NULL};
    lk_status status = lk__allocator_new(source, &device->allocator);
    if (status == LK_OK)
        status =
            lk__allocator_new((lk_memory_source){lk__host_alloc, lk__host_free, NULL, false}, &device->bookkeeping);
    if (status == LK_OK)
        status = lk__queue_open(device, device->index, &device->queue);
    if (status != LK_OK) {
        lk__device_release_memory(device);
        return status;
    }
    *out = device;
    return LK_OK;
}

static lk_status device_open_entry(const char *kind, int index, lk_device **out)
{
    lk_device *device = device_new(lk__backend_of_kind(kind), index);
    if (!device)
        return LK_ERR_MEMORY;
    snprintf(device->name, sizeof device->name, "%s:%d", kind, index);
    return device_start(device, out);
}

const lk_links_table *lk__links_of(const lk_device *device)
{
    return device->backend->links;
}

lk_status lk__links_open(const lk_links_opts *opts, lk_device **links)
{
    const lk_links_table *table = opts->table;
    if (opts->has_communicator)
        LK_TRY(table->check_library(opts->devices, opts->n));
    lk_device *device = device_new(table->backend, opts->devices[0]->index);
    if (!device)
        return LK_ERR_MEMORY;
    snprintf(device->name, sizeof device->name, "%s", table->backend->kind);
    device->linked = opts;
    lk_status status = device_start(device, links);
    if (status == LK_OK)
        device->linked = NULL;
    return status;
}

static void device_warn_shared_cores(const lk_device_spec_entry *entries, int count)
{
    for (int b = 0; lk__backends[b]; b++) {
        if (lk__backends[b]->offload)
            continue; /* several queues of one GPU do not compete for cores */
        int wanted = 0, highest = -1, available = lk__backends[b]->available();
        for (int i = 0; i < count; i++) {
            if (strcmp(entries[i].kind, lk__backends[b]->kind) != 0)
                continue;
            wanted++;
            highest = (int)lk__max(highest, entries[i].index);
        }
        if (wanted > available)
            lk__log(LK_LOG_WARNING, "%d %s devices share %d core%s: more devices than cores gain no speed", wanted,
                    lk__backends[b]->kind, available, available == 1 ? "" : "s");
        else if (highest >= available)
            lk__log(LK_LOG_WARNING, "%s:%d is beyond the last core, %s:%d: it shares a core from the first on",
                    lk__backends[b]->kind, highest, lk__backends[b]->kind, available - 1);
    }
}

lk_status lk_devices_open(const char *spec, lk_device **devices, int capacity, int *count)
{
    lk_device_spec_entry entries[LK_MAX_DEVICES];
    int n;
    *count = 0;
    LK_TRY(lk__device_spec_parse(spec, entries, LK_MAX_DEVICES, &n));
    if (n > capacity)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%s': names %d devices where at most %d fit", spec, n, capacity);
    device_warn_shared_cores(entries, n);
    for (int i = 0; i < n; i++) {
        lk_status status = device_open_entry(entries[i].kind, entries[i].index, &devices[i]);
        if (status != LK_OK) {
            lk_devices_release(devices, i);
            return status;
        }
    }
    *count = n;
    return LK_OK;
}

lk_device *lk_device_open(const char *spec)
{
    lk_device *device = NULL;
    int count;
    return lk_devices_open(spec, &device, 1, &count) == LK_OK ? device : NULL;
}

lk_device *lk_device_retain(lk_device *device)
{
    if (device)
        lk__refcount_retain(&device->users);
    return device;
}

void lk_device_release(lk_device *device)
{
    if (!device || !lk__refcount_release(&device->users))
        return;
    lk__queue_close(device->queue);
    lk__device_release_memory(device);
}

void lk_devices_release(lk_device *const *devices, int count)
{
    for (int i = 0; i < count; i++)
        lk_device_release(devices[i]);
}

void lk_device_set_algorithms(lk_device *device, lk_algorithms algorithms)
{
    device->algorithms = algorithms;
}

lk_status lk_device_set_tf32(lk_device *device, bool allowed)
{
    if (allowed && !device->backend->has_tf32)
        LK_FAIL(LK_ERR_UNSUPPORTED, "device %s: devices of kind %s have no TF32 arithmetic", device->name,
                device->backend->kind);
    device->tf32 = allowed;
    return LK_OK;
}

static lk_status device_keep_tuning(lk_device *device, lk_tuning *tuning)
{
    for (int i = 0; i < device->n_tunings; i++)
        if (device->tunings[i] == tuning)
            return LK_OK;
    lk_tuning **tunings = lk__realloc(device->tunings, (size_t)device->n_tunings + 1, sizeof(lk_tuning *));
    if (!tunings)
        return LK_ERR_MEMORY;
    device->tunings = tunings;
    device->tunings[device->n_tunings++] = lk_tuning_retain(tuning);
    return LK_OK;
}

lk_status lk_device_set_tuning(lk_device *device, lk_tuning *tuning)
{
    if (tuning && lk__tuning_backend(tuning) != device->backend)
        LK_FAIL(LK_ERR_ARGUMENT, "the tuning is for devices of kind %s, %s is another",
                lk__tuning_backend(tuning)->kind, device->name);
    if (tuning)
        LK_TRY(device_keep_tuning(device, tuning));
    device->tuning = tuning;
    return LK_OK;
}

const char *lk_device_name(const lk_device *device)
{
    return device->name;
}

const char *lk_device_kind(const lk_device *device)
{
    return device->backend->kind;
}

int lk_device_available(const char *kind)
{
    const lk_backend *backend = lk__backend_of_kind(kind);
    return backend ? backend->available() : 0;
}

const char *lk_device_kind_at(int index)
{
    for (int i = 0; lk__backends[i]; i++)
        if (i == index)
            return lk__backends[i]->kind;
    return NULL;
}

lk_status lk_device_describe(const char *kind, int index, char *text, int size)
{
    const lk_backend *backend = lk__backend_of_kind(kind);
    if (!backend)
        LK_FAIL(LK_ERR_ARGUMENT, "device: unknown kind '%s'", kind);
    return backend->describe(index, text, size);
}

lk_status lk_device_describe_kind(const char *kind, char *text, int size)
{
    const lk_backend *backend = lk__backend_of_kind(kind);
    if (!backend)
        LK_FAIL(LK_ERR_ARGUMENT, "device: unknown kind '%s'", kind);
    if (backend->describe_kind)
        return backend->describe_kind(text, size);
    snprintf(text, (size_t)size, "built in");
    return LK_OK;
}

lk_status lk_device_sync(lk_device *device)
{
    return lk__engine_sync(device);
}

lk_status lk_wait_all(void)
{
    return lk__engine_sync(NULL);
}

double lk_device_flops(const lk_device *device)
{
    return lk__engine_flops(device);
}

void lk_device_memory(const lk_device *device, int64_t *now, int64_t *peak)
{
    lk__allocator_stats(device->allocator, now, peak);
}
