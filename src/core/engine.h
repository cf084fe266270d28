/* Queues and events: in-order asynchronous execution.
 *
 * A queue is a ring of entries and, in the asynchronous engine, a thread that runs them in order. An event is a
 * position in a queue; it is complete once the queue has run that far. Work on another queue waits for an event by a
 * wait entry in its own ring, pushed before the entry that needs it. A queue therefore only waits for work that was
 * pushed earlier, and no cycle can arise. One lock for all queues is held while pushing: finding an entry's
 * dependencies and taking its position must be one step, or two threads that push crosswise could make two queues wait
 * for each other. */
#pragma once

#include "base/status.h"
#include "core/op.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct lk_queue lk_queue;

/* Position `sequence` of `queue`; with `queue` NULL, an event that is always complete. Queues are never freed, only
 * reused, and their sequence numbers keep rising: an event of a closed device stays valid, and complete. */
typedef struct lk_event {
    lk_queue *queue;
    uint64_t sequence;
} lk_event;

/* Takes a queue for `device`. Its thread is bound to physical core `core` and first calls the backend's `open`, whose
 * status is returned. */
lk_status lk__queue_open(lk_device *device, int core, lk_queue **queue);

/* Runs what was pushed, ends the thread, and makes the queue free for another device. */
void lk__queue_close(lk_queue *queue);

/* Pushes a copy of `call`, which takes its own references to the tensors. It runs after every earlier use of its
 * outputs and every earlier write of its inputs, on whichever queue. Blocks while the ring is full. */
lk_status lk__engine_push(const lk_call *call);

/* The same at once, even while the thread captures. If the device was released, or is being released by another thread,
 * nothing is pushed, *is_open is false, and that is no error. */
lk_status lk__engine_push_if_open(const lk_call *call, bool *is_open);

/* A piece of work that is more than one call: a segment of a program's replay. It reads and writes whole storages, to
 * which its maker holds references until `release`. */
typedef struct lk_task {
    lk_device *device;
    lk_storage **reads, **writes;
    int n_reads, n_writes;
    uint64_t *versions; /* NULL, or [n_reads], set while pushing: how often reads[i] was written before this task */
    double flops;
    lk_status (*run)(struct lk_task *task); /* on the device's thread; see core/links.h for those of links */
    /* On the device's thread, instead of `run`, if a storage that it reads or writes is poisoned; `status` and `why`
     * are the poison's. NULL: nothing to do then. */
    void (*leave_out)(struct lk_task *task, lk_status status, const char *why);
    void (*release)(struct lk_task *task); /* once it has run or was left out */
} lk_task;

/* Like lk__engine_push. On failure nothing was pushed, and the task still belongs to the caller. */
lk_status lk__engine_push_task(lk_task *task);

/* While a thread captures, the calls that it would push go to `push` instead and do not run. Programs are recorded this
 * way. */
typedef struct lk_capture {
    lk_status (*push)(void *self, const lk_call *call); /* NULL: not capturing */
    void *self;
} lk_capture;

/* Sets the calling thread's capture and returns the previous one. */
lk_capture lk__capture_set(lk_capture capture);
bool lk__capturing(void);

/* Pushes the conversion of the tensor's storage to the plain layout, if its writer may give it another one. */
lk_status lk__engine_push_plain(lk_tensor *tensor);

/* The same, but nothing if the device was released. */
lk_status lk__engine_push_plain_if_open(lk_tensor *tensor);

/* See lk_device_flops. */
double lk__engine_flops(const lk_device *device);

/* Returns whether the work of the event is known to be done. On an offload device that includes what the entry started.
 */
bool lk__event_complete(lk_event event);

/* Waits for the event, on a thread that is no queue's. Errors: on an offload device, the failure of the work. */
lk_status lk__event_wait(lk_event event);

/* Returns the event that completes with everything pushed to the queue so far. */
lk_event lk__queue_last(lk_queue *queue);

/* Call this when the host has written the storage, or is about to. */
void lk__storage_note_write(lk_storage *storage);

/* Returns whether a call or task that writes the storage was ever pushed, or the host wrote it. */
bool lk__storage_is_written(lk_storage *storage);

/* Waits on the calling thread until all writers of the storage are done (with `readers`, all readers too). Returns the
 * error of the work that should have written it. */
lk_status lk__engine_wait_storage(lk_storage *storage, bool readers);

/* Waits for everything pushed to the device (NULL: to every device), also if another thread is releasing it. Errors:
 * those of lk__event_wait. */
lk_status lk__engine_wait_device(const lk_device *device);

/* The same. Then it returns the first error of any task that was not reported to a caller yet. */
lk_status lk__engine_sync(const lk_device *device);

/* LOCKSTEP_ENGINE=sync (async is the default): tasks run in the thread that pushes them. */
bool lk__engine_is_sync(void);
