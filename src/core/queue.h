/* A queue: a ring of entries and the thread that runs them in order. engine.c decides what goes in; queue.c runs the
 * entries, sleeps when there are none, and wakes the threads that wait. */
#pragma once

#include "base/mem.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/trace.h"

#include <pthread.h>
#include <stdatomic.h>

/* Entries in a ring. This bounds how far a caller can run ahead of a device: a few steps of a small network. */
enum { LK_RING_ENTRIES = 1024, LK_MAX_QUEUES = 2 * LK_MAX_DEVICES };

typedef enum lk_entry_kind { LK_ENTRY_CALL, LK_ENTRY_TASK, LK_ENTRY_WAIT } lk_entry_kind;

typedef struct lk_ring_entry {
    _Alignas(LK_ALIGNMENT) lk_entry_kind kind;
    lk_phase phase; /* the entry's own; for a wait entry, of the work that is waited for */
    union {
        lk_call call;
        lk_task *task;
        struct {
            lk_event wait;
            lk_device *other; /* whose queue it is: a reference to its memory if it is an offload device, else NULL */
        };
    };
} lk_ring_entry;

/* Entries are numbered from 1 since the queue was made: entry `sequence` is ring[(sequence - 1) % LK_RING_ENTRIES].
 * `pushed` and `done` are the numbers of the last entry pushed and run. Members that different threads write lie on
 * different cache lines. */
struct lk_queue {
    int number;
    lk_device *device;         /* NULL while unused */
    int forks;                 /* tells the process whose thread runs entries: see engine.c */
    bool is_lost;              /* closed in another process than its thread's: never used again */
    const lk_offload *offload; /* of the present device, or of the last one */
    int core;
    bool shares_core; /* with a device's thread; neither spins then, because the other may be working. Threads that
                         wait for an entry may run it. */
    lk_ring_entry *ring;

    /* Written under the engine's lock. */
    _Alignas(LK_ALIGNMENT) _Atomic uint64_t pushed;
    uint64_t known_done;            /* `done` when it was last looked at */
    uint64_t waited[LK_MAX_QUEUES]; /* how far each other queue was already waited for */
    double flops;                   /* of calls and tasks pushed since the device was opened */

    /* Written by the thread that runs entries. */
    _Alignas(LK_ALIGNMENT) _Atomic uint64_t done;
    uint64_t shown;            /* the number of entries that was last recorded */
    _Atomic uint64_t finished; /* how far the work that was started is known to be done; only with `offload` */
    /* While something is recorded: when each entry of the ring began and ended. */
    _Atomic int64_t began[LK_RING_ENTRIES], ended[LK_RING_ENTRIES];
    _Atomic bool taken; /* with `shares_core`: a thread runs an entry */

    /* Sleeping. The queue's thread sleeps until something is pushed; others sleep until `done` reaches their target and
     * are woken only then, since a wake-up after every entry would cost more than the entry. A sleeper first
     * announces what it waits for and then checks once more; a thread that changes `pushed` or `done` checks for
     * announcements afterwards. Both use sequentially consistent operations, so one of the two sees the other. */
    _Alignas(LK_ALIGNMENT) pthread_mutex_t lock;
    pthread_cond_t work;
    _Atomic bool idle; /* the queue's thread sleeps, or is about to */
    struct lk_sleeper *sleepers;
    _Atomic uint64_t awaited; /* the smallest target among them */

    _Atomic bool stop;
    pthread_t thread;
    pthread_cond_t opening;
    bool opened;
    lk_status open_status;
    char open_message[256];
};

/* Returns an unused queue; NULL, with the thread's error set, if there is no memory. */
lk_queue *lk__queue_new(int number);

/* Opens the backend's state for queue->device on a new thread, which then runs entries; in the synchronous engine, on
 * the calling thread. queue->open_status is what the backend's `open` returned. Errors: LK_ERR_DEVICE (no thread). */
lk_status lk__queue_start(lk_queue *queue);

/* Runs what was pushed and ends the thread, if there is one. Nothing may be pushed any more. */
void lk__queue_stop(lk_queue *queue);

/* Wakes the queue's thread after `pushed` has risen. */
void lk__queue_announce(lk_queue *queue);

/* Notes that entry `sequence` has run, and wakes the threads that wait for it. */
void lk__queue_finish_entry(lk_queue *queue, uint64_t sequence);

/* Notes that the work of the entries up to `sequence` is done. */
void lk__queue_note_finished(lk_queue *queue, uint64_t sequence);

/* On any thread but the queue's: waits until the queue has run `target` entries. */
void lk__queue_wait(lk_queue *queue, uint64_t target);

/* The same, but may run the entries itself, and so not under the engine's lock. */
void lk__queue_await(lk_queue *queue, uint64_t target);
