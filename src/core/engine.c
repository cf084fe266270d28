#include "core/engine.h"

#include "base/mem.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/topology.h"
#include "core/trace.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Entries a ring. It bounds how far a caller can run ahead of a device: a few steps of a small network. */
enum { RING_ENTRIES = 1024, MAX_QUEUES = 2 * LK_MAX_DEVICES, SPINS = 1000, YIELDS = 10000 };

typedef enum entry_kind { ENTRY_CALL, ENTRY_TASK, ENTRY_WAIT } entry_kind;

typedef struct ring_entry {
    _Alignas(LK_ALIGNMENT) entry_kind kind;
    lk__phase phase; /* that runs; of a wait entry, that is waited for */
    union {
        lk_call call;
        lk_task *task;
        lk_event wait;
    };
} ring_entry;

/* A thread that sleeps until a queue has run entry `target`, in the queue's list. It has a semaphore of its own: nobody
 * is woken for what another one waits for, and who wakes up needs no lock. */
typedef struct sleeper {
    uint64_t target;
    sem_t there;
    struct sleeper *next;
} sleeper;

/* Entries pushed and entries run are counted from the queue's beginning: entry i is ring[i % RING_ENTRIES]. What one
 * thread writes lies apart from what the other one does, so that neither takes a line of the cache from the other. */
struct lk_queue {
    int number;
    lk_device *device; /* NULL while unused */
    int core;
    ring_entry *ring;

    /* Written with the engine's lock. */
    _Alignas(LK_ALIGNMENT) _Atomic uint64_t pushed;
    uint64_t known_done;         /* `done` as it was looked at last */
    uint64_t waited[MAX_QUEUES]; /* how far each other queue was already waited for */
    double flops;                /* of calls and tasks pushed; those before are in the device */

    /* Written by the queue's thread. */
    _Alignas(LK_ALIGNMENT) _Atomic uint64_t done;
    uint64_t shown; /* entries, as a recording was told last */
    /* While something is recorded: when entries began and ended, each in its place of the ring. */
    _Atomic int64_t began[RING_ENTRIES], ended[RING_ENTRIES];

    /* Sleeping. The queue's thread sleeps until something is pushed, others until `done` reaches what they wait for;
     * only then are they woken: a wake-up after every entry would cost more than the entry. A sleeper says what it
     * waits for before it looks for the last time; whoever changes `pushed` or `done` looks at that afterwards. Both
     * use sequentially consistent operations, so one of the two sees the other. */
    _Alignas(LK_ALIGNMENT) pthread_mutex_t lock;
    pthread_cond_t work;
    _Atomic bool idle; /* the queue's thread sleeps, or is about to */
    sleeper *sleepers;
    _Atomic uint64_t awaited; /* the least of their targets */

    _Atomic bool stop;
    pthread_t thread;
    pthread_cond_t opening;
    bool opened;
    lk_status open_status;
    char open_message[256];
};

static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
static lk_queue *queues[MAX_QUEUES];

static lk_status check_mode(void)
{
    const char *mode = getenv("LOCKSTEP_ENGINE");
    if (mode && *mode && strcmp(mode, "sync") != 0 && strcmp(mode, "async") != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "LOCKSTEP_ENGINE=%s: sync or async is possible", mode);
    return LK_OK;
}

bool lk__engine_is_sync(void)
{
    const char *mode = getenv("LOCKSTEP_ENGINE");
    return mode && strcmp(mode, "sync") == 0;
}

/* --- sleeping and waking ------------------------------------------------------------------------------------------ */

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool spin(const _Atomic uint64_t *position, uint64_t target)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(position, memory_order_acquire) >= target)
            return true;
        pause_briefly();
    }
    return false;
}

/* For some milliseconds. A core that goes to sleep comes back slowly, above all a virtual one, and a device that waits
 * for another one will be needed soon; whoever else wants the core gets it meanwhile. */
static bool yield_until(const _Atomic uint64_t *position, uint64_t target)
{
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(position, memory_order_acquire) >= target)
            return true;
        sched_yield();
    }
    return false;
}

/* On the queue's thread: waits until entry `target` is pushed or the queue is stopped. */
static void wait_for_work(lk_queue *queue, uint64_t target)
{
    if (atomic_load_explicit(&queue->pushed, memory_order_acquire) >= target)
        return;
    int64_t began = lk__trace_begin();
    if (!spin(&queue->pushed, target)) {
        pthread_mutex_lock(&queue->lock);
        atomic_store(&queue->idle, true);
        while (atomic_load(&queue->pushed) < target && !atomic_load(&queue->stop))
            pthread_cond_wait(&queue->work, &queue->lock);
        atomic_store(&queue->idle, false);
        pthread_mutex_unlock(&queue->lock);
    }
    lk__trace_end(LK_TRACE_IDLE, began, 0);
}

static void announce_work(lk_queue *queue)
{
    if (!atomic_load(&queue->idle))
        return;
    pthread_mutex_lock(&queue->lock);
    pthread_mutex_unlock(&queue->lock);
    pthread_cond_signal(&queue->work);
}

/* Those whose target is reached. */
static void wake_sleepers(lk_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t done = atomic_load(&queue->done), awaited = UINT64_MAX;
    for (sleeper **link = &queue->sleepers; *link;) {
        sleeper *one = *link;
        if (one->target <= done) {
            *link = one->next;
            sem_post(&one->there); /* from here on it may be gone */
        } else {
            awaited = one->target < awaited ? one->target : awaited;
            link = &one->next;
        }
    }
    atomic_store(&queue->awaited, awaited);
    pthread_mutex_unlock(&queue->lock);
}

/* On any other thread: until the queue has run `target` entries. */
static void sleep_until(lk_queue *queue, uint64_t target)
{
    sleeper self = {.target = target};
    sem_init(&self.there, 0, 0);
    pthread_mutex_lock(&queue->lock);
    self.next = queue->sleepers;
    queue->sleepers = &self;
    if (target < atomic_load(&queue->awaited))
        atomic_store(&queue->awaited, target);
    pthread_mutex_unlock(&queue->lock);
    if (atomic_load(&queue->done) >= target)
        wake_sleepers(queue); /* the queue's thread may have looked at the list before this one was in it */
    while (sem_wait(&self.there) != 0 && errno == EINTR)
        continue;
    sem_destroy(&self.there);
}

static void wait_for_progress(lk_queue *queue, uint64_t target)
{
    if (!spin(&queue->done, target))
        sleep_until(queue, target);
}

static void announce_progress(lk_queue *queue, uint64_t done)
{
    if (done >= atomic_load(&queue->awaited))
        wake_sleepers(queue);
}

bool lk__event_complete(lk_event event)
{
    return !event.queue || atomic_load_explicit(&event.queue->done, memory_order_acquire) >= event.sequence;
}

void lk__event_wait(lk_event event)
{
    if (!lk__event_complete(event))
        wait_for_progress(event.queue, event.sequence);
}

/* --- the queue's thread ------------------------------------------------------------------------------------------- */

static void note_time(_Atomic int64_t *time)
{
    if (lk__trace_is_on())
        atomic_store_explicit(time, lk__trace_clock(), memory_order_relaxed);
}

/* Limited, for what was noted may be older than the recording, or be of an entry that has come into the place since. */
static int64_t noted_time(const _Atomic int64_t *time, int64_t least, int64_t most)
{
    int64_t noted = atomic_load_explicit(time, memory_order_relaxed);
    return noted < least ? least : noted > most ? most : noted;
}

static void show_part(lk__trace_kind kind, int64_t began, int64_t ended)
{
    if (began < ended)
        lk__trace_interval(kind, began, ended, 0);
}

/* What the other queue did before an exchange is no wait for the exchange, nor is what other processes do behind it. */
static void show_wait(const ring_entry *entry, int64_t began)
{
    const lk_queue *other = entry->wait.queue;
    uint64_t place = (entry->wait.sequence - 1) % RING_ENTRIES;
    int64_t now = lk__trace_clock(), finished = noted_time(&other->ended[place], began, now), started = finished;
    if (entry->phase == LK_PHASE_EXCHANGE)
        started = noted_time(&other->began[place], began, finished);
    show_part(LK_TRACE_WAIT_DEVICE, began, started);
    show_part(LK_TRACE_WAIT_EXCHANGE, started, finished);
    show_part(LK_TRACE_WAIT_CORE, finished, now);
}

static void wait_for_other(const ring_entry *entry)
{
    int64_t began = lk__trace_begin();
    lk_queue *other = entry->wait.queue;
    uint64_t target = entry->wait.sequence;
    if (!spin(&other->done, target) && !yield_until(&other->done, target))
        sleep_until(other, target);
    if (lk__trace_is_on())
        show_wait(entry, began);
}

/* Tells a recording how many entries there are, where that has changed by much. */
static void show_length(lk_queue *queue)
{
    enum { MUCH = RING_ENTRIES / 32 };
    uint64_t length = atomic_load_explicit(&queue->pushed, memory_order_relaxed) -
                      atomic_load_explicit(&queue->done, memory_order_relaxed);
    uint64_t change = length > queue->shown ? length - queue->shown : queue->shown - length;
    if (change < MUCH && (length > 1 || queue->shown <= 1))
        return;
    queue->shown = length;
    lk__trace_end(LK_TRACE_QUEUED, lk__trace_clock(), (int64_t)length);
}

static void run_task(lk_task *task)
{
    int64_t began = lk__trace_begin();
    lk__execute_task(task);
    lk__trace_end(LK_TRACE_PROGRAM, began, lk__phase_current());
}

static void run_entry(lk_queue *queue, ring_entry *entry)
{
    int64_t place = entry - queue->ring;
    if (lk__trace_is_on())
        show_length(queue);
    note_time(&queue->began[place]);
    lk__phase_set(entry->phase);
    switch (entry->kind) {
    case ENTRY_CALL:
        lk__execute(queue->device, &entry->call);
        lk__call_release(&entry->call);
        break;
    case ENTRY_TASK:
        run_task(entry->task);
        entry->task->release(entry->task);
        break;
    case ENTRY_WAIT:
        wait_for_other(entry);
        break;
    }
    note_time(&queue->ended[place]);
}

/* Tensors are let go of before the entry counts as done: whoever waited for it finds the memory free. */
static void finish_entry(lk_queue *queue, uint64_t sequence)
{
    atomic_store(&queue->done, sequence);
    announce_progress(queue, sequence);
}

static void open_state(lk_queue *queue)
{
    lk_device *device = queue->device;
    lk_error_clear();
    queue->open_status = device->backend->open(device, &device->state);
    strncpy(queue->open_message, lk_error_message(), sizeof queue->open_message - 1);
    lk_error_clear();
}

static void *queue_main(void *argument)
{
    lk_queue *queue = argument;
    lk__trace_name_thread(LK_TRACK_DEVICE, queue->device->name);
    pthread_setname_np(pthread_self(), queue->device->name); /* for debuggers and profilers; a long name is refused */
    lk__topology_bind(queue->core);
    open_state(queue);
    pthread_mutex_lock(&queue->lock);
    queue->opened = true;
    pthread_cond_signal(&queue->opening);
    pthread_mutex_unlock(&queue->lock);

    uint64_t next = atomic_load(&queue->done), pushed = next;
    for (;; next++) {
        if (next == pushed) {
            wait_for_work(queue, next + 1);
            pushed = atomic_load_explicit(&queue->pushed, memory_order_acquire);
        }
        if (next == pushed)
            return NULL; /* stopped, and nothing is left */
        run_entry(queue, &queue->ring[next % RING_ENTRIES]);
        finish_entry(queue, next + 1);
    }
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static lk_queue *new_queue(int number)
{
    lk_queue *queue = lk__alloc_aligned(sizeof *queue);
    if (!queue)
        return NULL;
    memset(queue, 0, sizeof *queue);
    queue->ring = lk__alloc_aligned(RING_ENTRIES * sizeof *queue->ring);
    if (!queue->ring) {
        lk__free_aligned(queue);
        return NULL;
    }
    queue->number = number;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->work, NULL);
    pthread_cond_init(&queue->opening, NULL);
    atomic_init(&queue->awaited, UINT64_MAX);
    return queue;
}

static lk_status acquire_queue(lk_device *device, lk_queue **out)
{
    lk_status status = LK_OK;
    lk_queue *queue = NULL;
    pthread_mutex_lock(&engine_lock);
    for (int i = 0; i < MAX_QUEUES && !queue && status == LK_OK; i++) {
        if (queues[i] && queues[i]->device)
            continue;
        if (!queues[i])
            queues[i] = new_queue(i);
        queue = queues[i];
        if (!queue)
            status = LK_ERR_MEMORY;
    }
    if (queue)
        queue->device = device;
    pthread_mutex_unlock(&engine_lock);
    if (status == LK_OK && !queue)
        status = lk__fail(LK_ERR_DEVICE, "device: at most %d devices can be open at once", MAX_QUEUES);
    *out = queue;
    return status;
}

/* From here on nothing more can be pushed: what the queue's thread does not see, nobody would run. */
static void refuse_pushes(lk_queue *queue)
{
    pthread_mutex_lock(&engine_lock);
    queue->device->queue = NULL;
    queue->device->flops += queue->flops;
    queue->flops = 0;
    pthread_mutex_unlock(&engine_lock);
}

static void release_queue(lk_queue *queue)
{
    refuse_pushes(queue);
    pthread_mutex_lock(&engine_lock);
    queue->device = NULL;
    pthread_mutex_unlock(&engine_lock);
}

static lk_status start_thread(lk_queue *queue)
{
    int failed = pthread_create(&queue->thread, NULL, queue_main, queue);
    if (failed)
        LK_FAIL(LK_ERR_DEVICE, "device %s: no thread could be started: %s", queue->device->name, strerror(failed));
    pthread_mutex_lock(&queue->lock);
    while (!queue->opened)
        pthread_cond_wait(&queue->opening, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    return LK_OK;
}

lk_status lk__queue_open(lk_device *device, int core, lk_queue **out)
{
    lk_queue *queue;
    LK_TRY(check_mode());
    LK_TRY(acquire_queue(device, &queue));
    device->queue = queue;
    queue->core = core;
    queue->opened = false;
    atomic_store(&queue->stop, false);
    lk_status status = LK_OK;
    if (lk__engine_is_sync())
        open_state(queue);
    else
        status = start_thread(queue);
    if (status != LK_OK) {
        release_queue(queue);
        return status;
    }
    if (queue->open_status != LK_OK) {
        lk_status open_status = lk__fail(queue->open_status, "%s", queue->open_message);
        lk__queue_close(queue);
        return open_status;
    }
    *out = queue;
    return LK_OK;
}

void lk__queue_close(lk_queue *queue)
{
    refuse_pushes(queue);
    if (queue->opened) {
        pthread_mutex_lock(&queue->lock);
        atomic_store(&queue->stop, true);
        pthread_cond_broadcast(&queue->work);
        pthread_mutex_unlock(&queue->lock);
        pthread_join(queue->thread, NULL);
    }
    release_queue(queue);
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static void publish(lk_queue *queue)
{
    atomic_store(&queue->pushed, atomic_load_explicit(&queue->pushed, memory_order_relaxed) + 1);
    announce_work(queue);
}

static bool is_full(lk_queue *queue, uint64_t position)
{
    if (position - queue->known_done < RING_ENTRIES)
        return false;
    queue->known_done = atomic_load_explicit(&queue->done, memory_order_acquire);
    return position - queue->known_done >= RING_ENTRIES;
}

/* As much as a call of few operands without attributes takes. The queue's thread was the last to read it. */
static void prefetch_entry(const ring_entry *entry)
{
    enum { LINES = 3 };
    for (int i = 0; i < LINES; i++)
        lk__prefetch_to_write((const char *)entry + (size_t)i * LK_ALIGNMENT);
}

/* The next free entry. A full ring is waited for until half of it is free: the queue's thread has enough to do
 * meanwhile. That cannot deadlock: whatever the queue is waiting for was pushed before. */
static ring_entry *next_entry(lk_queue *queue)
{
    uint64_t position = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    if (is_full(queue, position)) {
        int64_t began = lk__trace_begin();
        wait_for_progress(queue, position - RING_ENTRIES / 2);
        lk__trace_end(LK_TRACE_WAIT_ROOM, began, 0);
    }
    prefetch_entry(&queue->ring[(position + 1) % RING_ENTRIES]);
    return &queue->ring[position % RING_ENTRIES];
}

/* Of what is waited for, which has not run, so its entry is still there. */
static lk__phase phase_of(lk_event event)
{
    return event.queue->ring[(event.sequence - 1) % RING_ENTRIES].phase;
}

static void push_wait(lk_queue *queue, lk_use use)
{
    if (!use.queue || use.queue == queue || queue->waited[use.queue->number] >= use.sequence)
        return;
    lk_event event = {use.queue, use.sequence};
    queue->waited[use.queue->number] = use.sequence;
    if (lk__event_complete(event))
        return;
    ring_entry *entry = next_entry(queue);
    entry->kind = ENTRY_WAIT;
    entry->wait = event;
    entry->phase = phase_of(event);
    publish(queue);
}

static lk_status reserve_reader(lk_storage *storage)
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

/* An operand may appear twice in a call, hence one use a queue, kept at the latest. */
static void note_reader(lk_storage *storage, lk_use use)
{
    for (int i = 0; i < storage->n_readers; i++) {
        if (storage->readers[i].queue == use.queue) {
            storage->readers[i].sequence = use.sequence;
            return;
        }
    }
    storage->readers[storage->n_readers++] = use;
}

static void wait_for_writer(lk_queue *queue, const lk_storage *storage)
{
    push_wait(queue, storage->writer);
}

static void wait_for_uses(lk_queue *queue, const lk_storage *storage)
{
    push_wait(queue, storage->writer);
    for (int r = 0; r < storage->n_readers; r++)
        push_wait(queue, storage->readers[r]);
}

static void note_writer(lk_storage *storage, lk_use use)
{
    storage->writer = use;
    storage->n_readers = 0;
}

/* The place of the entry that is published next. */
static lk_use next_use(lk_queue *queue)
{
    return (lk_use){queue, atomic_load_explicit(&queue->pushed, memory_order_relaxed) + 1};
}

/* In the synchronous engine, which has no thread, the entry is run at once. */
static void publish_and_run(lk_queue *queue, ring_entry *entry)
{
    publish(queue);
    if (queue->opened)
        return;
    uint64_t sequence = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    bool is_call = entry->kind == ENTRY_CALL;
    lk__execute_in_caller(queue->device, is_call ? &entry->call : NULL, is_call ? NULL : entry->task);
    if (is_call)
        lk__call_release(&entry->call);
    else
        entry->task->release(entry->task);
    finish_entry(queue, sequence);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void push_waits(lk_queue *queue, const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            wait_for_writer(queue, call->in[i]->storage);
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            wait_for_uses(queue, call->out[i]->storage);
}

static void note_layout(lk_storage *storage, const lk_call *call)
{
    if (call->free_layout)
        atomic_store_explicit(&storage->free_layout, true, memory_order_relaxed);
}

static void note_uses(const lk_call *call, lk_use use)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            note_reader(call->in[i]->storage, use);
    for (int i = 0; i < call->n_out; i++) {
        if (!call->out[i])
            continue;
        note_writer(call->out[i]->storage, use);
        note_layout(call->out[i]->storage, call);
    }
}

static lk_status push_locked(const lk_call *call)
{
    lk_queue *queue = call->device->queue;
    if (!queue)
        LK_FAIL(LK_ERR_STATE, "%s: device %s was released", call->op->name, call->device->name);
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            LK_TRY(reserve_reader(call->in[i]->storage));
    push_waits(queue, call);

    ring_entry *entry = next_entry(queue);
    entry->kind = ENTRY_CALL;
    entry->phase = lk__phase_current();
    lk__call_copy(&entry->call, call);
    lk__call_retain(call);
    if (call->op->flops)
        queue->flops += call->op->flops(call);
    note_uses(call, next_use(queue));
    publish_and_run(queue, entry);
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

/* A captured output may get a layout as one that was pushed. */
static lk_status capture(const lk_call *call)
{
    LK_TRY(thread_capture.push(thread_capture.self, call));
    pthread_mutex_lock(&engine_lock);
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            note_layout(call->out[i]->storage, call);
    pthread_mutex_unlock(&engine_lock);
    return LK_OK;
}

lk_status lk__engine_push(const lk_call *call)
{
    if (thread_capture.push)
        return capture(call);
    pthread_mutex_lock(&engine_lock);
    lk_status status = push_locked(call);
    pthread_mutex_unlock(&engine_lock);
    return status;
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

static lk_status push_task_locked(lk_task *task)
{
    lk_queue *queue = task->device->queue;
    if (!queue)
        LK_FAIL(LK_ERR_STATE, "program: device %s was released", task->device->name);
    for (int i = 0; i < task->n_reads; i++)
        LK_TRY(reserve_reader(task->reads[i]));
    for (int i = 0; i < task->n_reads; i++)
        wait_for_writer(queue, task->reads[i]);
    for (int i = 0; i < task->n_writes; i++)
        wait_for_uses(queue, task->writes[i]);

    ring_entry *entry = next_entry(queue);
    entry->kind = ENTRY_TASK;
    entry->phase = lk__phase_current();
    entry->task = task;
    queue->flops += task->flops;
    for (int i = 0; i < task->n_reads; i++)
        note_reader(task->reads[i], next_use(queue));
    for (int i = 0; i < task->n_writes; i++)
        note_writer(task->writes[i], next_use(queue));
    publish_and_run(queue, entry);
    return LK_OK;
}

lk_status lk__engine_push_task(lk_task *task)
{
    pthread_mutex_lock(&engine_lock);
    lk_status status = push_task_locked(task);
    pthread_mutex_unlock(&engine_lock);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------ */

double lk__engine_flops(const lk_device *device)
{
    pthread_mutex_lock(&engine_lock);
    double flops = device->flops + (device->queue ? device->queue->flops : 0);
    pthread_mutex_unlock(&engine_lock);
    return flops;
}

lk_status lk__engine_push_plain(lk_tensor *tensor)
{
    lk_status status = LK_OK;
    if (!atomic_load_explicit(&tensor->storage->free_layout, memory_order_relaxed))
        return LK_OK;
    pthread_mutex_lock(&engine_lock);
    if (tensor->storage->free_layout) {
        lk_call call = {.op = &lk__op_plain, .device = tensor->storage->device, .n_out = 1, .out = {tensor}};
        status = thread_capture.push ? thread_capture.push(thread_capture.self, &call) : push_locked(&call);
        if (status == LK_OK)
            tensor->storage->free_layout = false;
    }
    pthread_mutex_unlock(&engine_lock);
    return status;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static lk_event pending_use(lk_storage *storage, bool readers)
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

bool lk__storage_is_written(lk_storage *storage)
{
    pthread_mutex_lock(&engine_lock);
    bool written =
        storage->writer.queue || storage->data; /* without a writer, data is the host's and does not change */
    pthread_mutex_unlock(&engine_lock);
    return written;
}

static void wait_for_result(lk_event event)
{
    if (lk__event_complete(event))
        return;
    int64_t began = lk__trace_begin();
    lk__event_wait(event);
    lk__trace_end(LK_TRACE_WAIT_RESULT, began, 0);
}

lk_status lk__engine_wait_storage(lk_storage *storage, bool readers)
{
    for (;;) {
        pthread_mutex_lock(&engine_lock);
        lk_event event = pending_use(storage, readers);
        pthread_mutex_unlock(&engine_lock);
        if (!event.queue)
            break;
        wait_for_result(event);
    }
    return storage->error ? lk__error_report(storage->error) : LK_OK;
}

lk_event lk__queue_last(lk_queue *queue)
{
    return (lk_event){queue, atomic_load(&queue->pushed)};
}

lk_status lk__engine_sync(lk_queue *queue)
{
    for (int i = 0; i < MAX_QUEUES; i++) {
        pthread_mutex_lock(&engine_lock);
        lk_event last = {NULL, 0};
        if (queues[i] && queues[i]->device && (!queue || queue == queues[i]))
            last = lk__queue_last(queues[i]);
        pthread_mutex_unlock(&engine_lock);
        wait_for_result(last);
    }
    return lk__error_report_unreported();
}
