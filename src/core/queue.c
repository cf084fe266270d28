#include "core/queue.h"
#include "base/heartbeat.h"
#include "base/thread.h"
#include "core/execute.h"
#include "core/stamps.h"
#include "core/topology.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

enum { SPINS = 1000, YIELDS = 10000 };

/* A thread that sleeps until a queue has run entry `target`; it is in the queue's list. Each has its own semaphore, so
 * that no thread is woken for another one's target and the woken one needs no lock. */
typedef struct lk_sleeper {
    uint64_t target;
    sem_t reached;
    struct lk_sleeper *next;
} sleeper;

/* --- sleeping and waking ------------------------------------------------------------------------------------------ */

static inline void queue_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool queue_spin(const _Atomic uint64_t *position, uint64_t target)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(position, memory_order_acquire) >= target)
            return true;
        queue_pause();
    }
    return false;
}

/* Yields for some milliseconds. A core that goes to sleep is slow to come back, above all a virtual one, and a device
 * that waits for another one will be needed soon; meanwhile any other thread can have the core. */
static bool queue_yield(const _Atomic uint64_t *position, uint64_t target)
{
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(position, memory_order_acquire) >= target)
            return true;
        sched_yield();
    }
    return false;
}

static bool queue_is_empty(lk_queue *queue)
{
    return atomic_load(&queue->done) == atomic_load(&queue->pushed);
}

/* On the queue's thread: returns whether it need not wait. */
static bool queue_can_go_on(lk_queue *queue)
{
    return queue_is_empty(queue) ? atomic_load(&queue->stop) : !atomic_load(&queue->taken);
}

/* On the queue's thread: waits until there is an entry for it to run, or the queue is stopped and empty. */
static void queue_wait_for_entry(lk_queue *queue)
{
    if (queue_can_go_on(queue))
        return;
    int64_t began = lk__trace_begin();
    if (queue->shares_core || !queue_spin(&queue->pushed, atomic_load(&queue->done) + 1)) {
        lk__activity_set(LK_ACTIVITY_NONE, "no work");
        pthread_mutex_lock(&queue->lock);
        atomic_store(&queue->idle, true);
        while (!queue_can_go_on(queue))
            pthread_cond_wait(&queue->work, &queue->lock);
        atomic_store(&queue->idle, false);
        pthread_mutex_unlock(&queue->lock);
    }
    lk__trace_end(LK_TRACE_IDLE, began, 0);
}

void lk__queue_announce(lk_queue *queue)
{
    if (!atomic_load(&queue->idle))
        return;
    pthread_mutex_lock(&queue->lock);
    pthread_mutex_unlock(&queue->lock);
    pthread_cond_signal(&queue->work);
}

/* Wakes the sleepers whose target is reached. */
static void queue_wake_sleepers(lk_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t done = atomic_load(&queue->done), awaited = UINT64_MAX;
    for (sleeper **link = &queue->sleepers; *link;) {
        sleeper *one = *link;
        if (one->target <= done) {
            *link = one->next;
            sem_post(&one->reached); /* from here on `one` may be gone */
        } else {
            awaited = one->target < awaited ? one->target : awaited;
            link = &one->next;
        }
    }
    atomic_store(&queue->awaited, awaited);
    pthread_mutex_unlock(&queue->lock);
}

/* On any other thread: sleeps until the queue has run `target` entries. */
static void queue_sleep(lk_queue *queue, uint64_t target)
{
    sleeper self = {.target = target};
    sem_init(&self.reached, 0, 0);
    pthread_mutex_lock(&queue->lock);
    self.next = queue->sleepers;
    queue->sleepers = &self;
    if (target < atomic_load(&queue->awaited))
        atomic_store(&queue->awaited, target);
    pthread_mutex_unlock(&queue->lock);
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT, "wait for results");
    if (atomic_load(&queue->done) >= target)
        queue_wake_sleepers(queue); /* the queue's thread may have looked at the list before this thread was in it */
    while (sem_wait(&self.reached) != 0 && errno == EINTR)
        continue;
    lk__activity_end(before);
    sem_destroy(&self.reached);
}

void lk__queue_wait(lk_queue *queue, uint64_t target)
{
    if (!queue_spin(&queue->done, target))
        queue_sleep(queue, target);
}

/* --- the queue's thread ------------------------------------------------------------------------------------------- */

static void queue_note_time(_Atomic int64_t *time)
{
    if (lk__trace_is_on())
        atomic_store_explicit(time, lk__nanoseconds(), memory_order_relaxed);
}

/* Returns the noted time, clamped: it may be older than the recording, or belong to a later entry in the same slot of
 * the ring. */
static int64_t queue_noted_time(const _Atomic int64_t *time, int64_t least, int64_t most)
{
    int64_t noted = atomic_load_explicit(time, memory_order_relaxed);
    return noted < least ? least : noted > most ? most : noted;
}

static void queue_trace_wait_part(lk_trace_kind kind, int64_t began, int64_t ended)
{
    if (began < ended)
        lk__trace_interval(kind, began, ended, 0);
}

/* Splits a wait into three parts. Until an exchange begins, the other queue computes; then it exchanges; once it has
 * ended, this thread waits for a core, which other processes may be using. */
static void queue_trace_wait(const lk_ring_entry *entry, int64_t began)
{
    const lk_queue *other = entry->wait.queue;
    uint64_t slot = (entry->wait.sequence - 1) % LK_RING_ENTRIES;
    int64_t now = lk__nanoseconds(), finished = queue_noted_time(&other->ended[slot], began, now), started = finished;
    if (entry->phase == LK_PHASE_EXCHANGE)
        started = queue_noted_time(&other->began[slot], began, finished);
    queue_trace_wait_part(LK_TRACE_WAIT_DEVICE, began, started);
    queue_trace_wait_part(LK_TRACE_WAIT_EXCHANGE, started, finished);
    queue_trace_wait_part(LK_TRACE_WAIT_CORE, finished, now);
}

/* Keeps a failure that belongs to no entry, and so has no tensor to poison; a later lk__engine_sync returns it. */
static void queue_note_failure(lk_status status)
{
    if (status != LK_OK)
        lk__error_note(status);
}

/* Between two offload devices of one kind the device itself waits; otherwise this thread does. */
static lk_status queue_wait_for_offload(lk_queue *queue, lk_device *other, uint64_t sequence)
{
    const lk_offload *offload = other->backend->offload;
    return queue->offload == offload ? offload->follow(queue->device, other, sequence) : offload->wait(other, sequence);
}

static bool queue_run_for(lk_queue *queue, uint64_t target);

static void queue_wait_for_other(lk_queue *queue, const lk_ring_entry *entry)
{
    int64_t began = lk__trace_begin();
    lk_queue *other = entry->wait.queue;
    uint64_t target = entry->wait.sequence;
    if (other->shares_core
            ? !queue_run_for(other, target)
            : queue->shares_core || (!queue_spin(&other->done, target) && !queue_yield(&other->done, target)))
        queue_sleep(other, target);
    if (entry->other) {
        queue_note_failure(queue_wait_for_offload(queue, entry->other, target));
        lk__device_release_memory(entry->other);
    }
    if (lk__trace_is_on())
        queue_trace_wait(entry, began);
}

/* Records the number of entries in the queue, if it has changed by much. */
static void queue_trace_length(lk_queue *queue)
{
    enum { MUCH = LK_RING_ENTRIES / 32 };
    uint64_t length = atomic_load_explicit(&queue->pushed, memory_order_relaxed) -
                      atomic_load_explicit(&queue->done, memory_order_relaxed);
    uint64_t change = length > queue->shown ? length - queue->shown : queue->shown - length;
    if (change < MUCH && (length > 1 || queue->shown <= 1))
        return;
    queue->shown = length;
    lk__trace_end(LK_TRACE_QUEUED, lk__nanoseconds(), (int64_t)length);
}

/* In a recording an entry ends when the work that it started is done. */
static void queue_trace_work(lk_queue *queue)
{
    if (queue->offload && lk__trace_is_on())
        queue_note_failure(lk__stamps_trace(queue->device));
}

static void queue_run_task(lk_queue *queue, lk_task *task, bool is_own_thread)
{
    int64_t began = lk__trace_begin();
    if (is_own_thread)
        lk__execute_task(task);
    else
        lk__execute_in_caller(queue->device, NULL, task);
    queue_trace_work(queue);
    lk__trace_end(LK_TRACE_PROGRAM, began, lk__phase_current());
}

static void queue_run_entry(lk_queue *queue, lk_ring_entry *entry, bool is_own_thread)
{
    int64_t slot = entry - queue->ring;
    if (lk__trace_is_on())
        queue_trace_length(queue);
    queue_note_time(&queue->began[slot]);
    lk__phase_set(entry->phase);
    switch (entry->kind) {
    case LK_ENTRY_CALL:
        lk__execute(queue->device, &entry->call);
        queue_trace_work(queue);
        lk__call_release(&entry->call);
        break;
    case LK_ENTRY_TASK:
        queue_run_task(queue, entry->task, is_own_thread);
        entry->task->release(entry->task);
        break;
    case LK_ENTRY_WAIT:
        queue_wait_for_other(queue, entry);
        break;
    }
    queue_note_time(&queue->ended[slot]);
}

/* The queue's thread and one that waits for an entry take turns in running entries, if the queue shares a core. */
static bool queue_take(lk_queue *queue)
{
    return !queue->shares_core || !atomic_exchange(&queue->taken, true);
}

static void queue_give_back(lk_queue *queue)
{
    if (queue->shares_core)
        atomic_store(&queue->taken, false);
}

/* Call it after the entry's tensors have been released, so that a thread that waited for the entry finds their memory
 * free. Gives the queue back before it wakes others, which may get this core at once. */
static void queue_finish_entry(lk_queue *queue, uint64_t sequence, bool gives_back)
{
    atomic_store(&queue->done, sequence);
    if (gives_back)
        queue_give_back(queue);
    if (sequence >= atomic_load(&queue->awaited))
        queue_wake_sleepers(queue);
}

void lk__queue_finish_entry(lk_queue *queue, uint64_t sequence)
{
    queue_finish_entry(queue, sequence, true);
}

/* On a thread that waits for a queue which shares a core: runs the entries up to `target` itself, unless the queue's
 * thread has begun them, since handing them over takes longer than a short exchange. Whatever they wait for was pushed
 * before them, so it does not wait for this thread. Returns whether they have been run. */
static bool queue_run_for(lk_queue *queue, uint64_t target)
{
    if (!queue_take(queue))
        return false;
    lk_activity activity = lk__activity_begin(LK_ACTIVITY_WAIT, "wait for results");
    lk_phase phase = lk__phase_current();
    for (uint64_t next = atomic_load(&queue->done); next < target; next++) {
        queue_run_entry(queue, &queue->ring[next % LK_RING_ENTRIES], false);
        queue_finish_entry(queue, next + 1, false);
    }
    lk__phase_set(phase);
    lk__activity_end(activity);
    queue_give_back(queue);
    if (!queue_is_empty(queue) || atomic_load(&queue->stop))
        lk__queue_announce(queue);
    return true;
}

void lk__queue_await(lk_queue *queue, uint64_t target)
{
    if (queue->shares_core ? !queue_run_for(queue, target) : !queue_spin(&queue->done, target))
        queue_sleep(queue, target);
}

void lk__queue_note_finished(lk_queue *queue, uint64_t sequence)
{
    uint64_t known = atomic_load(&queue->finished);
    while (known < sequence && !atomic_compare_exchange_weak(&queue->finished, &known, sequence))
        continue;
}

static void queue_open_state(lk_queue *queue)
{
    lk_device *device = queue->device;
    lk_error_clear();
    queue->open_status = device->backend->open(device, &device->state);
    strncpy(queue->open_message, lk_error_message(), sizeof queue->open_message - 1);
    lk_error_clear();
}

/* On the queue's thread: waits for the next entry and takes the queue. Returns false once it is stopped and empty. */
static bool queue_take_next(lk_queue *queue)
{
    for (;;) {
        queue_wait_for_entry(queue);
        if (!queue_take(queue))
            continue;
        if (!queue_is_empty(queue))
            return true;
        queue_give_back(queue);
        if (atomic_load(&queue->stop))
            return false;
    }
}

static void *queue_main(void *argument)
{
    lk_queue *queue = argument;
    lk__trace_name_thread(queue->device->linked ? LK_TRACK_LINKS : LK_TRACK_DEVICE, queue->device->name);
    pthread_setname_np(pthread_self(), queue->device->name); /* for debuggers and profilers; a long name is refused */
    if (!queue->offload) /* an offload device's thread only starts work, on any core that is free */
        lk__topology_bind(queue->core);
    /* Opening links may connect to other processes. */
    lk__activity_set(queue->device->linked ? LK_ACTIVITY_WAIT_REMOTE : LK_ACTIVITY_WORK, "open a device");
    queue_open_state(queue);
    pthread_mutex_lock(&queue->lock);
    queue->opened = true;
    pthread_cond_signal(&queue->opening);
    pthread_mutex_unlock(&queue->lock);

    uint64_t next = atomic_load(&queue->done), pushed = next;
    for (;; next++) {
        if (next == pushed || queue->shares_core) {
            if (!queue_take_next(queue))
                break;
            next = atomic_load(&queue->done);
            pushed = atomic_load_explicit(&queue->pushed, memory_order_acquire);
        }
        queue_run_entry(queue, &queue->ring[next % LK_RING_ENTRIES], true);
        if (queue->offload)
            queue_note_failure(queue->offload->mark(queue->device, next + 1));
        lk__queue_finish_entry(queue, next + 1);
    }
    if (queue->offload && queue->open_status == LK_OK)
        queue_note_failure(queue->offload->drain(queue->device));
    lk__queue_note_finished(queue, atomic_load(&queue->done)); /* all work has ended, whether it succeeded or not */
    return NULL;
}

/* --- starting and stopping ---------------------------------------------------------------------------------------- */

lk_queue *lk__queue_new(int number)
{
    lk_queue *queue = lk__alloc_aligned(sizeof *queue);
    if (!queue)
        return NULL;
    memset(queue, 0, sizeof *queue);
    queue->ring = lk__alloc_aligned(LK_RING_ENTRIES * sizeof *queue->ring);
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

static lk_status queue_start_thread(lk_queue *queue)
{
    int failed = lk__thread_start(&queue->thread, queue_main, queue);
    if (failed)
        LK_FAIL(LK_ERR_DEVICE, "device %s: no thread could be started: %s", queue->device->name, strerror(failed));
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT, "open a device");
    pthread_mutex_lock(&queue->lock);
    while (!queue->opened)
        pthread_cond_wait(&queue->opening, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    lk__activity_end(before);
    return LK_OK;
}

lk_status lk__queue_start(lk_queue *queue)
{
    queue->opened = false;
    queue->shares_core = queue->device->linked && !queue->offload;
    atomic_store(&queue->stop, false);
    if (!lk__engine_is_sync())
        return queue_start_thread(queue);
    queue_open_state(queue);
    return LK_OK;
}

void lk__queue_stop(lk_queue *queue)
{
    if (!queue->opened)
        return;
    pthread_mutex_lock(&queue->lock);
    atomic_store(&queue->stop, true);
    pthread_cond_broadcast(&queue->work);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
}
