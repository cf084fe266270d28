/* A storage: a block of a device's memory, with its last writer and its readers since then.
 *
 * `data` stays NULL until the first write has run. The device's thread allocates it just before, so memory follows
 * execution, not pushing, however far the caller runs ahead. */
#pragma once

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

/* The first 64 bytes belong to the device's thread, the rest to the threads that push: they must not write to the same
 * cache line. */
typedef struct lk_storage {
    lk_device *device;
    size_t bytes; /* of the plain layout */

    /* Written by the task that writes the storage, read by tasks ordered after it. */
    void *data;
    struct lk_block *block; /* the memory of `data`; NULL if that is wrapped or a slot of a memory plan */
    size_t planned;         /* bytes of the slot in a memory plan that `data` points to; 0: none */
    size_t used;            /* bytes that the last write's layout took */
    const void *layout;     /* NULL: plain; else the backend's description, which lives as long as the device */
    struct lk_error *error; /* poison: why the data is not valid; NULL: it is */

    lk_refcount references;

    /* Guarded by the engine's lock. */
    atomic_bool free_layout; /* its writer may give it a private layout; also read without the lock */
    bool is_product;         /* free_layout, and left as the factors of a product (core/products.h) */
    int n_readers, readers_capacity;
    lk_use writer;
    lk_use *readers; /* few_readers, or memory for more */
    lk_use few_readers[2];
    uint64_t writes; /* writes so far, pushed or by the host */

    void (*release)(void *user); /* frees wrapped memory */
    void *user;
} lk_storage;

lk_status lk__storage_new(lk_device *device, size_t bytes, lk_storage **storage);
void lk__storage_retain(lk_storage *storage);
void lk__storage_release(lk_storage *storage);

/* Makes sure that `data` holds at least `bytes` bytes in `layout` (NULL: plain). Contents are lost unless the storage
 * already had that layout and size. On the device's thread, from the task that writes. */
lk_status lk__storage_allocate(lk_storage *storage, size_t bytes, const void *layout);

/* Replaces the storage's block by `block`, which it takes over. On the device's thread, from the task that writes. */
void lk__storage_replace(lk_storage *storage, struct lk_block *block, const void *layout);

/* Poison marks storages that failed work should have written. The first failure makes it; storages share it. */
typedef struct lk_error {
    lk_refcount references;
    lk_status status;
    char message[512];
} lk_error;

void lk__error_release(lk_error *error);
