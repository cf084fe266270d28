/* A caching allocator: blocks of a device's memory go to a free list of their size class and come back from it. Classes
 * are four to a doubling, so at most a quarter of a block is unused. Thread-safe. */
#ifndef LK_CORE_ALLOCATOR_H
#define LK_CORE_ALLOCATOR_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct lk_allocator lk_allocator;

typedef struct lk_block {
    void *data; /* aligned to LK_ALIGNMENT */
    size_t size;
    struct lk_block *next;
} lk_block;

/* How the device's memory is had and given back. alloc gives NULL with the thread's error set. */
typedef struct lk_memory_source {
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *data);
    void *self;
} lk_memory_source;

/* These two where it is the process's. */
void *lk__host_alloc(void *self, size_t bytes);
void lk__host_free(void *self, void *data);

lk_status lk__allocator_new(lk_memory_source source, lk_allocator **allocator);

/* Every block must have come back. */
void lk__allocator_free(lk_allocator *allocator);

/* When the source refuses, the cached blocks are given back to it and it is asked once more. */
lk_status lk__allocator_get(lk_allocator *allocator, size_t bytes, lk_block **block);
void lk__allocator_put(lk_allocator *allocator, lk_block *block);

/* The block goes back to the source: nothing like it is needed again soon. */
void lk__allocator_drop(lk_allocator *allocator, lk_block *block);

/* All cached blocks go back to the source. */
void lk__allocator_trim(lk_allocator *allocator);

/* Bytes of the block that lk__allocator_get gives for so many. */
size_t lk__allocator_block_bytes(size_t bytes);

/* Bytes in blocks handed out, now and at most. */
void lk__allocator_stats(lk_allocator *allocator, int64_t *now, int64_t *peak);

#endif
