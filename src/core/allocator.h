/* A caching allocator. Freed blocks of a device's memory go to a free list for their size class and are handed out
 * again from there. There are four classes to each doubling, so at most a quarter of a block is unused. Thread-safe. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk_allocator lk_allocator;

typedef struct lk_block {
    void *data; /* aligned to LK_ALIGNMENT */
    size_t size;
    struct lk_block *next;
} lk_block;

/* The source of an allocator's memory. `alloc` returns NULL with the thread's error set. */
typedef struct lk_memory_source {
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *data);
    void *self;
    bool has_cache; /* the source caches by itself: freed blocks go back to it at once */
} lk_memory_source;

/* The source for memory of the process; `self` is not used. */
void *lk__host_alloc(void *self, size_t bytes);
void lk__host_free(void *self, void *data);

lk_status lk__allocator_new(lk_memory_source source, lk_allocator **allocator);

/* Every block must have been given back. */
void lk__allocator_free(lk_allocator *allocator);

/* If the source refuses, the allocator returns all cached blocks to it and asks once more. */
lk_status lk__allocator_get(lk_allocator *allocator, size_t bytes, lk_block **block);
void lk__allocator_put(lk_allocator *allocator, lk_block *block);

/* Returns the block to the source instead of caching it: use this when no block of its size is needed soon. */
void lk__allocator_drop(lk_allocator *allocator, lk_block *block);

/* Returns all cached blocks to the source. */
void lk__allocator_trim(lk_allocator *allocator);

/* Size of the block that lk__allocator_get returns for `bytes`. */
size_t lk__allocator_block_bytes(size_t bytes);

/* Bytes in blocks handed out: now, and the peak. */
void lk__allocator_stats(lk_allocator *allocator, int64_t *now, int64_t *peak);
