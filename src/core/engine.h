/* Queues and events: in-order asynchronous execution.
 *
 * A queue is a ring of tasks and, in the asynchronous engine, a thread that runs them in order. An event is a position
 * in a queue; it is complete once the queue has run that far. Work on another queue waits for an event by a wait entry
 * in its own ring, pushed before the task that needs it, so a queue only ever waits for work that was already pushed
 * and no cycle can arise. Pushing holds one lock for all queues: a task's dependencies and its place must change
 * together, or two threads pushing crosswise could make two queues wait for each other. */
#ifndef LK_CORE_ENGINE_H
#define LK_CORE_ENGINE_H

#include "core/op.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct lk_queue lk_queue;

/* Position `sequence` of `queue`; a NULL queue is always complete. Queues are never freed, only reused, with sequence
 * numbers that go on rising: an event of a closed device stays valid, and complete. */
typedef struct lk_event {
    lk_queue *queue;
    uint64_t sequence;
} lk_event;

/* A queue for `device`. Its thread is bound to physical core `core` and calls the backend's `open` first; the status of
 * that is returned. */
lk_status lk__queue_open(lk_device *device, int core, lk_queue **queue);

/* Runs what was pushed, ends the thread, and gives the queue back. */
void lk__queue_close(lk_queue *queue);

/* Pushes a copy of `call`, which takes its own references to the tensors, ordered after every earlier use of its
 * outputs and every earlier write of its inputs, whichever queue they are on. Blocks while the ring is full. */
lk_status lk__engine_push(const lk_call *call);

/* Work that is more than one call: a program's replay. It reads and writes whole storages, of which its maker holds
 * references until `release`. */
typedef struct lk_task {
    lk_device *device;
    lk_storage **reads, **writes;
    int n_reads, n_writes;
    uint64_t *versions; /* NULL, or [n_reads], set by pushing: how often reads[i] was written before it */
    double flops;
    lk_status (*run)(struct lk_task *task); /* on the device's thread */
    /* NULL, or called there instead of run where what it reads or writes is poisoned, with what by. */
    void (*leave_out)(struct lk_task *task, lk_status status, const char *why);
    void (*release)(struct lk_task *task); /* once it has run, or was left out */
} lk_task;

/* As lk__engine_push. On failure nothing was pushed, and the task is still the caller's. */
lk_status lk__engine_push_task(lk_task *task);

/* While a thread captures, what it would push goes to `push` instead and does not run: how a program is recorded. */
typedef struct lk_capture {
    lk_status (*push)(void *self, const lk_call *call); /* NULL: not capturing */
    void *self;
} lk_capture;

/* Sets the calling thread's, and gives back what it was. */
lk_capture lk__capture_set(lk_capture capture);
bool lk__capturing(void);

/* Pushes the conversion of a storage to the plain layout, if its writer may give it another one. */
lk_status lk__engine_push_plain(lk_tensor *tensor);

/* lk_device_flops. */
double lk__engine_flops(const lk_device *device);

/* Where the device works by itself: whether what was started is known to be done. */
bool lk__event_complete(lk_event event);

/* Waits for it, on a thread that is no queue's. Errors: what became of the work of a device that works by itself. */
lk_status lk__event_wait(lk_event event);

/* The event after everything pushed to the queue so far. */
lk_event lk__queue_last(lk_queue *queue);

/* To be called when the host has written the storage, or is about to. */
void lk__storage_note_write(lk_storage *storage);

/* Whether something was ever pushed, or done by the host, that writes the storage. */
bool lk__storage_is_written(lk_storage *storage);

/* Waits for whatever writes the storage (`readers` too: whatever reads it), on the calling thread. Gives back the error
 * of what was to write it. */
lk_status lk__engine_wait_storage(lk_storage *storage, bool readers);

/* Waits for everything pushed to `queue`, or to every queue where it is NULL, and gives back the first error of any
 * task that nobody was told of yet. */
lk_status lk__engine_sync(lk_queue *queue);

/* LOCKSTEP_ENGINE=sync (async is the default): tasks run in the thread that pushes them. */
bool lk__engine_is_sync(void);

#endif
