/* A queue: a ring of entries and the thread that runs them in order. engine.c decides what goes in; queue.c runs it,
 * sleeps when there is nothing, and wakes who waits. */
#ifndef LK_CORE_QUEUE_H
#define LK_CORE_QUEUE_H

#include "base/mem.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/trace.h"

#include <pthread.h>
#include <stdatomic.h>

/* Entries a ring. It bounds how far a caller can run ahead of a device: a few steps of a small network. */
enum { LK_RING_ENTRIES = 1024, LK_MAX_QUEUES = 2 * LK_MAX_DEVICES };

typedef enum lk_entry_kind { LK_ENTRY_CALL, LK_ENTRY_TASK, LK_ENTRY_WAIT } lk_entry_kind;

typedef struct lk_ring_entry {
    _Alignas(LK_ALIGNMENT) lk_entry_kind kind;
    lk__phase phase; /* that runs; of a wait entry, that is waited for */
    union {
        lk_call call;
        lk_task *task;
        struct {
            lk_event wait;
            lk_device *other; /* whose queue it is, if it works by itself: a reference to its memory; else NULL */
        };
    };
} lk_ring_entry;

/* Entries pushed and entries run are counted from the queue's beginning: entry i is ring[i % LK_RING_ENTRIES]. What one
 * thread writes lies apart from what the other one does, so that neither takes a line of the cache from the other. */
struct lk_queue {
    int number;
    lk_device *device;         /* NULL while unused */
    const lk_offload *offload; /* of the device that it has, or had last */
    int core;
    bool is_beside; /* its thread shares the core of a device's: neither spins while the other one works */
    lk_ring_entry *ring;

    /* Written with the engine's lock. */
    _Alignas(LK_ALIGNMENT) _Atomic uint64_t pushed;
    uint64_t known_done;            /* `done` as it was looked at last */
    uint64_t waited[LK_MAX_QUEUES]; /* how far each other queue was already waited for */
    double flops;                   /* of calls and tasks pushed; those before are in the device */

    /* Written by the queue's thread. */
    _Alignas(LK_ALIGNMENT) _Atomic uint64_t done;
    uint64_t shown;            /* entries, as a recording was told last */
    _Atomic uint64_t finished; /* of those done, what is known to have been worked off; only with `offload` */
    /* While something is recorded: when entries began and ended, each in its place of the ring. */
    _Atomic int64_t began[LK_RING_ENTRIES], ended[LK_RING_ENTRIES];

    /* Sleeping. The queue's thread sleeps until something is pushed, others until `done` reaches what they wait for;
     * only then are they woken: a wake-up after every entry would cost more than the entry. A sleeper says what it
     * waits for before it looks for the last time; whoever changes `pushed` or `done` looks at that afterwards. Both
     * use sequentially consistent operations, so one of the two sees the other. */
    _Alignas(LK_ALIGNMENT) pthread_mutex_t lock;
    pthread_cond_t work;
    _Atomic bool idle; /* the queue's thread sleeps, or is about to */
    struct lk_sleeper *sleepers;
    _Atomic uint64_t awaited; /* the least of their targets */

    _Atomic bool stop;
    pthread_t thread;
    pthread_cond_t opening;
    bool opened;
    lk_status open_status;
    char open_message[256];
};

/* An unused queue. NULL, with the thread's error set: no memory. */
lk_queue *lk__queue_new(int number);

/* Opens the backend's state for queue->device, on a thread of the queue's own that then runs entries; in the
 * synchronous engine on the calling thread, and there is none. queue->open_status is what the backend gave. Errors:
 * LK_ERR_DEVICE (no thread). */
lk_status lk__queue_start(lk_queue *queue);

/* Runs what was pushed and ends the thread, if there is one. Nobody may push any more. */
void lk__queue_stop(lk_queue *queue);

/* Wakes the queue's thread after `pushed` has risen. */
void lk__queue_announce(lk_queue *queue);

/* Entry `sequence` has run; whoever waits for it is woken. */
void lk__queue_finish_entry(lk_queue *queue, uint64_t sequence);

/* Entries up to `sequence` are worked off. */
void lk__queue_note_finished(lk_queue *queue, uint64_t sequence);

/* On any other thread: waits until the queue has run `target` entries. */
void lk__queue_wait(lk_queue *queue, uint64_t target);

#endif
