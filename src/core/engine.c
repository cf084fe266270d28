/* Decides what goes into the queues and what it must wait for. queue.c runs the entries. */
#include "base/heartbeat.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/queue.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
static lk_queue *queues[LK_MAX_QUEUES];
static int engine_forks; /* the forks that led to this process since the first device was opened */

bool lk__engine_is_sync(void)
{
    const char *mode = getenv("LOCKSTEP_ENGINE");
    return mode && strcmp(mode, "sync") == 0;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void engine_note_fork(void)
{
    engine_forks++;
}

/* Returns whether the queue's thread is missing here, because another process started it. */
static bool engine_is_foreign(const lk_queue *queue)
{
    return queue->forks != engine_forks && !lk__engine_is_sync();
}

static lk_status engine_acquire_queue(lk_device *device, lk_queue **out)
{
    lk_status status = LK_OK;
    lk_queue *queue = NULL;
    static bool notes_forks;
    pthread_mutex_lock(&engine_lock);
    if (!notes_forks)
        notes_forks = pthread_atfork(NULL, NULL, engine_note_fork) == 0;
    for (int i = 0; i < LK_MAX_QUEUES && !queue && status == LK_OK; i++) {
        if (queues[i] && (queues[i]->device || queues[i]->is_lost))
            continue;
        if (!queues[i])
            queues[i] = lk__queue_new(i);
        queue = queues[i];
        if (!queue)
            status = LK_ERR_MEMORY;
    }
    if (queue) {
        queue->device = device;
        queue->forks = engine_forks;
        queue->offload = device->backend->offload;
        lk__queue_note_finished(queue, atomic_load(&queue->done));
    }
    pthread_mutex_unlock(&engine_lock);
    if (status == LK_OK && !queue)
        status = lk__fail(LK_ERR_DEVICE, "device: at most %d devices can be open at once", LK_MAX_QUEUES);
    *out = queue;
    return status;
}

lk_status lk__queue_open(lk_device *device, int core, lk_queue **out)
{
    lk_queue *queue;
    const char *mode = getenv("LOCKSTEP_ENGINE");
    if (mode && *mode && strcmp(mode, "sync") != 0 && strcmp(mode, "async") != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "LOCKSTEP_ENGINE=%s: sync or async is possible", mode);
    LK_TRY(engine_acquire_queue(device, &queue));
    device->queue = queue;
    queue->core = core;
    lk_status status = lk__queue_start(queue);
    if (status == LK_OK && queue->open_status != LK_OK)
        status = lk__fail(queue->open_status, "%s", queue->open_message);
    if (status == LK_OK)
        *out = queue;
    else
        lk__queue_close(queue);
    return status;
}

void lk__queue_close(lk_queue *queue)
{
    pthread_mutex_lock(&engine_lock);
    queue->device->queue = NULL; /* refuses pushes: an entry that the stopping thread misses would never run */
    queue->device->flops += queue->flops;
    queue->flops = 0;
    queue->is_lost = engine_is_foreign(queue);
    pthread_mutex_unlock(&engine_lock);
    if (!queue->is_lost)
        lk__queue_stop(queue);
    pthread_mutex_lock(&engine_lock);
    queue->device = NULL;
    pthread_mutex_unlock(&engine_lock);
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static void engine_publish(lk_queue *queue)
{
    atomic_store(&queue->pushed, atomic_load_explicit(&queue->pushed, memory_order_relaxed) + 1);
    lk__queue_announce(queue);
}

static bool engine_ring_is_full(lk_queue *queue, uint64_t position)
{
    if (position - queue->known_done < LK_RING_ENTRIES)
        return false;
    queue->known_done = atomic_load_explicit(&queue->done, memory_order_acquire);
    return position - queue->known_done >= LK_RING_ENTRIES;
}

/* Prefetches the cache lines that a call with few operands and no attributes fills. The queue's thread was the last to
 * read them. */
static void engine_prefetch_entry(const lk_ring_entry *entry)
{
    enum { LINES = 3 };
    for (int i = 0; i < LINES; i++)
        lk__prefetch_to_write((const char *)entry + (size_t)i * LK_ALIGNMENT);
}

/* Returns the next free entry. If the ring is full, waits until half of it is free: the queue's thread has enough to do
 * meanwhile. That cannot deadlock, because whatever the queue waits for was pushed before. */
static lk_ring_entry *engine_next_entry(lk_queue *queue)
{
    uint64_t position = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    if (engine_ring_is_full(queue, position)) {
        int64_t began = lk__trace_begin();
        lk__queue_wait(queue, position - LK_RING_ENTRIES / 2);
        lk__trace_end(LK_TRACE_WAIT_ENTRY, began, 0);
    }
    engine_prefetch_entry(&queue->ring[(position + 1) % LK_RING_ENTRIES]);
    return &queue->ring[position % LK_RING_ENTRIES];
}

/* Returns the phase of the entry that is waited for. The entry is still in the ring; if only the work that it started
 * is left, it may have been overwritten, and the phase is then a guess. */
static lk_phase engine_phase_of(lk_event event)
{
    return event.queue->ring[(event.sequence - 1) % LK_RING_ENTRIES].phase;
}

static void engine_push_wait(lk_queue *queue, lk_use use)
{
    if (!use.queue || use.queue == queue || queue->waited[use.queue->number] >= use.sequence)
        return;
    lk_event event = {use.queue, use.sequence};
    queue->waited[use.queue->number] = use.sequence;
    if (lk__event_complete(event))
        return;
    lk_ring_entry *entry = engine_next_entry(queue);
    entry->kind = LK_ENTRY_WAIT;
    entry->wait = event;
    entry->other = use.queue->offload ? use.queue->device : NULL;
    if (entry->other)
        lk__device_retain_memory(entry->other);
    entry->phase = engine_phase_of(event);
    engine_publish(queue);
}

static lk_status engine_reserve_reader(lk_storage *storage)
{
    if (storage->n_readers < storage->readers_capacity)
        return LK_OK;
    bool is_few = storage->readers == storage->few_readers;
    int capacity = 2 * storage->readers_capacity;
    lk_use *readers = lk__device_calloc(storage->device, (size_t)capacity, sizeof *readers);
    if (!readers)
        return LK_ERR_MEMORY;
    memcpy(readers, storage->readers, (size_t)storage->n_readers * sizeof *readers);
    if (!is_few)
        lk__device_free(storage->device, storage->readers);
    storage->readers = readers;
    storage->readers_capacity = capacity;
    return LK_OK;
}

/* An operand may appear twice in a call, so each queue has one use: the latest. */
static void engine_note_reader(lk_storage *storage, lk_use use)
{
    for (int i = 0; i < storage->n_readers; i++) {
        if (storage->readers[i].queue == use.queue) {
            storage->readers[i].sequence = use.sequence;
            return;
        }
    }
    storage->readers[storage->n_readers++] = use;
}

static void engine_wait_for_uses(lk_queue *queue, const lk_storage *storage)
{
    engine_push_wait(queue, storage->writer);
    for (int r = 0; r < storage->n_readers; r++)
        engine_push_wait(queue, storage->readers[r]);
}

static void engine_note_writer(lk_storage *storage, lk_use use)
{
    storage->writer = use;
    storage->n_readers = 0;
    storage->writes++;
}

/* Returns the position of the entry that is published next. */
static lk_use engine_next_use(lk_queue *queue)
{
    return (lk_use){queue, atomic_load_explicit(&queue->pushed, memory_order_relaxed) + 1};
}

/* In the synchronous engine, the work that an entry started is done when the push returns. */
static void engine_drain_in_caller(lk_queue *queue, uint64_t sequence)
{
    lk_status status = queue->offload->mark(queue->device, sequence);
    if (status == LK_OK)
        status = queue->offload->drain(queue->device);
    if (status != LK_OK)
        lk__error_note(status);
    lk__queue_note_finished(queue, sequence);
}

/* The synchronous engine has no thread, so it runs the entry at once. */
static void engine_publish_entry(lk_queue *queue, lk_ring_entry *entry)
{
    engine_publish(queue);
    if (queue->opened)
        return;
    uint64_t sequence = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    bool is_call = entry->kind == LK_ENTRY_CALL;
    lk__execute_in_caller(queue->device, is_call ? &entry->call : NULL, is_call ? NULL : entry->task);
    if (is_call)
        lk__call_release(&entry->call);
    else
        entry->task->release(entry->task);
    if (queue->offload)
        engine_drain_in_caller(queue, sequence);
    lk__queue_finish_entry(queue, sequence);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void engine_push_waits(lk_queue *queue, const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            engine_push_wait(queue, call->in[i]->storage->writer);
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            engine_wait_for_uses(queue, call->out[i]->storage);
}

static void engine_note_layout(lk_storage *storage, const lk_call *call)
{
    if (call->free_layout)
        atomic_store_explicit(&storage->free_layout, true, memory_order_relaxed);
}

static void engine_note_uses(const lk_call *call, lk_use use)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            engine_note_reader(call->in[i]->storage, use);
    for (int i = 0; i < call->n_out; i++) {
        if (!call->out[i])
            continue;
        engine_note_writer(call->out[i]->storage, use);
        engine_note_layout(call->out[i]->storage, call);
    }
}

static lk_status engine_refuse_foreign(const char *what, const lk_device *device)
{
    LK_FAIL(LK_ERR_STATE, "%s: device %s was opened before fork, by the parent process; open another in this one", what,
            device->name);
}

static lk_status engine_push_locked(const lk_call *call)
{
    lk_queue *queue = call->device->queue;
    if (!queue)
        LK_FAIL(LK_ERR_STATE, "%s: device %s was released", call->op->name, call->device->name);
    if (engine_is_foreign(queue))
        return engine_refuse_foreign(call->op->name, call->device);
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            LK_TRY(engine_reserve_reader(call->in[i]->storage));
    engine_push_waits(queue, call);

    lk_ring_entry *entry = engine_next_entry(queue);
    entry->kind = LK_ENTRY_CALL;
    entry->phase = lk__phase_current();
    lk__call_copy(&entry->call, call);
    lk__call_retain(call);
    if (call->op->flops)
        queue->flops += call->op->flops(call);
    engine_note_uses(call, engine_next_use(queue));
    engine_publish_entry(queue, entry);
    return LK_OK;
}

static _Thread_local lk_capture thread_capture;

lk_capture lk__capture_set(lk_capture capture)
{
    lk_capture before = thread_capture;
    thread_capture = capture;
    return before;
}

bool lk__capturing(void)
{
    return thread_capture.push;
}

/* A captured output may get a private layout just like one that was pushed. */
static lk_status engine_capture(const lk_call *call)
{
    LK_TRY(thread_capture.push(thread_capture.self, call));
    pthread_mutex_lock(&engine_lock);
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            engine_note_layout(call->out[i]->storage, call);
    pthread_mutex_unlock(&engine_lock);
    return LK_OK;
}

lk_status lk__engine_push(const lk_call *call)
{
    if (thread_capture.push)
        return engine_capture(call);
    pthread_mutex_lock(&engine_lock);
    lk_status status = engine_push_locked(call);
    pthread_mutex_unlock(&engine_lock);
    return status;
}

lk_status lk__engine_push_if_open(const lk_call *call, bool *is_open)
{
    pthread_mutex_lock(&engine_lock);
    *is_open = call->device->queue != NULL;
    lk_status status = *is_open ? engine_push_locked(call) : LK_OK;
    pthread_mutex_unlock(&engine_lock);
    return status;
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

static lk_status engine_push_task_locked(lk_task *task)
{
    lk_queue *queue = task->device->queue;
    if (!queue)
        LK_FAIL(LK_ERR_STATE, "program: device %s was released", task->device->name);
    if (engine_is_foreign(queue))
        return engine_refuse_foreign("program", task->device);
    for (int i = 0; i < task->n_reads; i++)
        LK_TRY(engine_reserve_reader(task->reads[i]));
    for (int i = 0; i < task->n_reads; i++)
        engine_push_wait(queue, task->reads[i]->writer);
    for (int i = 0; i < task->n_writes; i++)
        engine_wait_for_uses(queue, task->writes[i]);

    lk_ring_entry *entry = engine_next_entry(queue);
    entry->kind = LK_ENTRY_TASK;
    entry->phase = lk__phase_current();
    entry->task = task;
    queue->flops += task->flops;
    for (int i = 0; task->versions && i < task->n_reads; i++)
        task->versions[i] = task->reads[i]->writes;
    for (int i = 0; i < task->n_reads; i++)
        engine_note_reader(task->reads[i], engine_next_use(queue));
    for (int i = 0; i < task->n_writes; i++)
        engine_note_writer(task->writes[i], engine_next_use(queue));
    engine_publish_entry(queue, entry);
    return LK_OK;
}

lk_status lk__engine_push_task(lk_task *task)
{
    pthread_mutex_lock(&engine_lock);
    lk_status status = engine_push_task_locked(task);
    pthread_mutex_unlock(&engine_lock);
    return status;
}

/* --- conversions -------------------------------------------------------------------------------------------------- */

/* Without a writer, `data` is the host's and does not change. */
static bool engine_is_written(const lk_storage *storage)
{
    return storage->writer.queue || storage->data;
}

/* While a thread records, a tensor that was written before is converted at once: others may use it before the program
 * runs, if it ever does. */
static lk_status engine_push_plain(lk_tensor *tensor, bool only_if_open)
{
    lk_status status = LK_OK;
    if (!atomic_load_explicit(&tensor->storage->free_layout, memory_order_relaxed))
        return LK_OK;
    pthread_mutex_lock(&engine_lock);
    if (tensor->storage->free_layout && (tensor->storage->device->queue || !only_if_open)) {
        lk_call call = {.op = &lk__op_plain, .device = tensor->storage->device, .n_out = 1, .out = {tensor}};
        bool captures = thread_capture.push && !engine_is_written(tensor->storage);
        status = captures ? thread_capture.push(thread_capture.self, &call) : engine_push_locked(&call);
        if (status == LK_OK)
            tensor->storage->free_layout = tensor->storage->is_product = false;
    }
    pthread_mutex_unlock(&engine_lock);
    return status;
}

lk_status lk__engine_push_plain(lk_tensor *tensor)
{
    return engine_push_plain(tensor, false);
}

lk_status lk__engine_push_plain_if_open(lk_tensor *tensor)
{
    return engine_push_plain(tensor, true);
}

double lk__engine_flops(const lk_device *device)
{
    pthread_mutex_lock(&engine_lock);
    double flops = device->flops + (device->queue ? device->queue->flops : 0);
    pthread_mutex_unlock(&engine_lock);
    return flops;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

bool lk__event_complete(lk_event event)
{
    if (!event.queue)
        return true;
    const _Atomic uint64_t *position = event.queue->offload ? &event.queue->finished : &event.queue->done;
    return atomic_load_explicit(position, memory_order_acquire) >= event.sequence;
}

/* A device's failure was usually noticed by an operator first, and the operator's error says more. */
static lk_status engine_first_error(lk_status status)
{
    lk_error_state kept;
    lk__error_save(&kept);
    lk_error_clear();
    lk_status first = lk__error_report_unreported();
    if (first != LK_OK)
        return first;
    lk__error_restore(&kept);
    return status;
}

/* Waits for the work that an entry has started. A queue that has closed was drained, and may have another device now.
 */
static lk_status engine_wait_for_work(lk_event event)
{
    pthread_mutex_lock(&engine_lock);
    lk_device *device = lk__event_complete(event) ? NULL : event.queue->device;
    if (device)
        lk__device_retain_memory(device);
    pthread_mutex_unlock(&engine_lock);
    if (!device)
        return LK_OK;
    lk_status status = device->backend->offload->wait(device, event.sequence);
    if (status == LK_OK)
        lk__queue_note_finished(event.queue, event.sequence);
    lk__device_release_memory(device);
    return status == LK_OK ? LK_OK : engine_first_error(status);
}

lk_status lk__event_wait(lk_event event)
{
    if (lk__event_complete(event))
        return LK_OK;
    if (engine_is_foreign(event.queue))
        LK_FAIL(LK_ERR_STATE, "what a device had not finished before fork is finished in the parent process only");
    lk__queue_await(event.queue, event.sequence);
    return event.queue->offload ? engine_wait_for_work(event) : LK_OK;
}

static lk_event engine_pending_use(lk_storage *storage, bool readers)
{
    lk_event event = {storage->writer.queue, storage->writer.sequence};
    if (!lk__event_complete(event))
        return event;
    for (int i = 0; readers && i < storage->n_readers; i++) {
        event = (lk_event){storage->readers[i].queue, storage->readers[i].sequence};
        if (!lk__event_complete(event))
            return event;
    }
    return (lk_event){NULL, 0};
}

void lk__storage_note_write(lk_storage *storage)
{
    pthread_mutex_lock(&engine_lock);
    storage->writes++;
    pthread_mutex_unlock(&engine_lock);
}

bool lk__storage_is_written(lk_storage *storage)
{
    pthread_mutex_lock(&engine_lock);
    bool written = engine_is_written(storage);
    pthread_mutex_unlock(&engine_lock);
    return written;
}

static lk_status engine_wait_for_result(lk_event event)
{
    if (lk__event_complete(event))
        return LK_OK;
    int64_t began = lk__trace_begin();
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT, "wait for results");
    lk_status status = lk__event_wait(event);
    lk__activity_end(before);
    lk__trace_end(LK_TRACE_WAIT_RESULT, began, 0);
    return status;
}

lk_status lk__engine_wait_storage(lk_storage *storage, bool readers)
{
    for (;;) {
        pthread_mutex_lock(&engine_lock);
        lk_event event = engine_pending_use(storage, readers);
        pthread_mutex_unlock(&engine_lock);
        if (!event.queue)
            break;
        LK_TRY(engine_wait_for_result(event));
    }
    return storage->error ? lk__error_report(storage->error) : LK_OK;
}

lk_event lk__queue_last(lk_queue *queue)
{
    return (lk_event){queue, atomic_load(&queue->pushed)};
}

lk_status lk__engine_wait_device(const lk_device *device)
{
    for (int i = 0; i < LK_MAX_QUEUES; i++) {
        pthread_mutex_lock(&engine_lock);
        lk_event last = {NULL, 0};
        if (queues[i] && queues[i]->device && (device ? device == queues[i]->device : !engine_is_foreign(queues[i])))
            last = lk__queue_last(queues[i]);
        pthread_mutex_unlock(&engine_lock);
        LK_TRY(engine_wait_for_result(last));
    }
    return LK_OK;
}

lk_status lk__engine_sync(const lk_device *device)
{
    LK_TRY(lk__engine_wait_device(device));
    return lk__error_report_unreported();
}
