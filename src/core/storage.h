/* Storage: a block of a device's memory, who wrote it last and who has read it since.
 *
 * `data` stays NULL until the first write has run: it is allocated on the device's thread just before, so memory
 * follows execution, not pushing, however far the caller runs ahead. */
#ifndef LK_CORE_STORAGE_H
#define LK_CORE_STORAGE_H

#include "base/refcount.h"
#include "base/status.h"
#include "lockstep/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lk_queue;
struct lk_block;
struct lk_error;

typedef struct lk_use {
    struct lk_queue *queue;
    uint64_t sequence;
} lk_use;

/* Its first 64 bytes belong to the device's thread, those behind to the threads that push: which of the two writes must
 * not take a line of the cache from the other. */
typedef struct lk_storage {
    lk_device *device;
    size_t bytes; /* of the plain layout */

    /* Written by the task that writes the storage, read by tasks ordered after it. */
    void *data;
    struct lk_block *block; /* where data came from; NULL for wrapped memory, and for a place in a plan */
    size_t planned;         /* bytes of a place in a memory plan that data points to; 0: none */
    size_t used;            /* bytes that the last write's layout took */
    const void *layout;     /* NULL: plain; else the backend's, which owns it for as long as the device lives */
    struct lk_error *error; /* poisoned */

    lk_refcount references;

    /* Guarded by the engine's lock. */
    atomic_bool free_layout; /* may get a layout when its writer runs; asked without the lock */
    int n_readers, readers_capacity;
    lk_use writer;
    lk_use *readers; /* few_readers, or memory for more */
    lk_use few_readers[2];
    uint64_t writes; /* how often what was pushed, or the host, writes it */

    void (*release)(void *user); /* wrapped memory */
    void *user;
} lk_storage;

lk_status lk__storage_new(lk_device *device, size_t bytes, lk_storage **storage);
void lk__storage_retain(lk_storage *storage);
void lk__storage_release(lk_storage *storage);

/* Makes sure that `data` holds at least `bytes` bytes in `layout` (NULL: plain). Contents are lost unless the storage
 * already was of that layout and size. On the device's thread, from the task that writes. */
lk_status lk__storage_allocate(lk_storage *storage, size_t bytes, const void *layout);

/* Makes the storage forget its block, taking over `block` instead; on the device's thread, from the task that writes.
 */
void lk__storage_replace(lk_storage *storage, struct lk_block *block, const void *layout);

/* Poison: what is written after a failure. Shared, reference-counted; the first to fail makes it. */
typedef struct lk_error {
    lk_refcount references;
    lk_status status;
    char message[512];
} lk_error;

void lk__error_release(lk_error *error);

#endif
