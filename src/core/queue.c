#include "core/queue.h"

#include "base/heartbeat.h"
#include "core/execute.h"
#include "core/stamps.h"
#include "core/topology.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

enum { SPINS = 1000, YIELDS = 10000 };

/* A thread that sleeps until a queue has run entry `target`, in the queue's list. It has a semaphore of its own: nobody
 * is woken for what another one waits for, and who wakes up needs no lock. */
typedef struct lk_sleeper {
    uint64_t target;
    sem_t there;
    struct lk_sleeper *next;
} sleeper;

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
        lk__now(LK_DOING_NOTHING, "no work");
        pthread_mutex_lock(&queue->lock);
        atomic_store(&queue->idle, true);
        while (atomic_load(&queue->pushed) < target && !atomic_load(&queue->stop))
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
    lk__doing before = lk__now_for_a_while(LK_DOING_WAIT, "wait for results");
    if (atomic_load(&queue->done) >= target)
        wake_sleepers(queue); /* the queue's thread may have looked at the list before this one was in it */
    while (sem_wait(&self.there) != 0 && errno == EINTR)
        continue;
    lk__now_again(before);
    sem_destroy(&self.there);
}

void lk__queue_wait(lk_queue *queue, uint64_t target)
{
    if (!spin(&queue->done, target))
        sleep_until(queue, target);
}

static void announce_progress(lk_queue *queue, uint64_t done)
{
    if (done >= atomic_load(&queue->awaited))
        wake_sleepers(queue);
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
static void show_wait(const lk_ring_entry *entry, int64_t began)
{
    const lk_queue *other = entry->wait.queue;
    uint64_t place = (entry->wait.sequence - 1) % LK_RING_ENTRIES;
    int64_t now = lk__trace_clock(), finished = noted_time(&other->ended[place], began, now), started = finished;
    if (entry->phase == LK_PHASE_EXCHANGE)
        started = noted_time(&other->began[place], began, finished);
    show_part(LK_TRACE_WAIT_DEVICE, began, started);
    show_part(LK_TRACE_WAIT_EXCHANGE, started, finished);
    show_part(LK_TRACE_WAIT_CORE, finished, now);
}

/* What fails beside the entries has no tensor that could say so. */
static void note_failure(lk_status status)
{
    if (status != LK_OK)
        lk__error_note(status);
}

/* What a device that works by itself has started is waited for there, if this one works so too. */
static lk_status wait_for_work_of(lk_queue *queue, lk_device *other, uint64_t sequence)
{
    const lk_offload *offload = other->backend->offload;
    return queue->offload == offload ? offload->follow(queue->device, other, sequence) : offload->wait(other, sequence);
}

static void wait_for_other(lk_queue *queue, const lk_ring_entry *entry)
{
    int64_t began = lk__trace_begin();
    lk_queue *other = entry->wait.queue;
    uint64_t target = entry->wait.sequence;
    if (queue->is_beside || other->is_beside || (!spin(&other->done, target) && !yield_until(&other->done, target)))
        sleep_until(other, target);
    if (entry->other) {
        note_failure(wait_for_work_of(queue, entry->other, target));
        lk__device_release_memory(entry->other);
    }
    if (lk__trace_is_on())
        show_wait(entry, began);
}

/* Tells a recording how many entries there are, where that has changed by much. */
static void show_length(lk_queue *queue)
{
    enum { MUCH = LK_RING_ENTRIES / 32 };
    uint64_t length = atomic_load_explicit(&queue->pushed, memory_order_relaxed) -
                      atomic_load_explicit(&queue->done, memory_order_relaxed);
    uint64_t change = length > queue->shown ? length - queue->shown : queue->shown - length;
    if (change < MUCH && (length > 1 || queue->shown <= 1))
        return;
    queue->shown = length;
    lk__trace_end(LK_TRACE_QUEUED, lk__trace_clock(), (int64_t)length);
}

/* To a recording an entry is over when what it has started is. */
static void show_work(lk_queue *queue)
{
    if (queue->offload && lk__trace_is_on())
        note_failure(lk__stamps_show(queue->device));
}

static void run_task(lk_queue *queue, lk_task *task)
{
    int64_t began = lk__trace_begin();
    lk__execute_task(task);
    show_work(queue);
    lk__trace_end(LK_TRACE_PROGRAM, began, lk__phase_current());
}

static void run_entry(lk_queue *queue, lk_ring_entry *entry)
{
    int64_t place = entry - queue->ring;
    if (lk__trace_is_on())
        show_length(queue);
    note_time(&queue->began[place]);
    lk__phase_set(entry->phase);
    switch (entry->kind) {
    case LK_ENTRY_CALL:
        lk__execute(queue->device, &entry->call);
        show_work(queue);
        lk__call_release(&entry->call);
        break;
    case LK_ENTRY_TASK:
        run_task(queue, entry->task);
        entry->task->release(entry->task);
        break;
    case LK_ENTRY_WAIT:
        wait_for_other(queue, entry);
        break;
    }
    note_time(&queue->ended[place]);
}

/* Tensors are let go of before the entry counts as done: whoever waited for it finds the memory free. */
void lk__queue_finish_entry(lk_queue *queue, uint64_t sequence)
{
    atomic_store(&queue->done, sequence);
    announce_progress(queue, sequence);
}

void lk__queue_note_finished(lk_queue *queue, uint64_t sequence)
{
    uint64_t known = atomic_load(&queue->finished);
    while (known < sequence && !atomic_compare_exchange_weak(&queue->finished, &known, sequence))
        continue;
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
    lk__trace_name_thread(queue->device->linked ? LK_TRACK_LINKS : LK_TRACK_DEVICE, queue->device->name);
    pthread_setname_np(pthread_self(), queue->device->name); /* for debuggers and profilers; a long name is refused */
    if (!queue->offload) /* else it only starts work, from wherever the system finds time */
        lk__topology_bind(queue->core);
    /* Links may connect to other processes then. */
    lk__now(queue->device->linked ? LK_DOING_OTHERS : LK_DOING_WORK, "open a device");
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
            break; /* stopped, and nothing is left */
        run_entry(queue, &queue->ring[next % LK_RING_ENTRIES]);
        if (queue->offload)
            note_failure(queue->offload->mark(queue->device, next + 1));
        lk__queue_finish_entry(queue, next + 1);
    }
    if (queue->offload && queue->open_status == LK_OK)
        note_failure(queue->offload->drain(queue->device));
    lk__queue_note_finished(queue, next); /* nothing more will become of it, whatever it was */
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

static lk_status start_thread(lk_queue *queue)
{
    int failed = pthread_create(&queue->thread, NULL, queue_main, queue);
    if (failed)
        LK_FAIL(LK_ERR_DEVICE, "device %s: no thread could be started: %s", queue->device->name, strerror(failed));
    lk__doing before = lk__now_for_a_while(LK_DOING_WAIT, "open a device");
    pthread_mutex_lock(&queue->lock);
    while (!queue->opened)
        pthread_cond_wait(&queue->opening, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    lk__now_again(before);
    return LK_OK;
}

lk_status lk__queue_start(lk_queue *queue)
{
    queue->opened = false;
    queue->is_beside = queue->device->linked && !queue->offload;
    atomic_store(&queue->stop, false);
    if (!lk__engine_is_sync())
        return start_thread(queue);
    open_state(queue);
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
