#include "core/allocator.h"
#include "base/mem.h"
#include "base/minmax.h"

#include <pthread.h>

enum { MIN_SHIFT = 8, CLASSES = (48 - MIN_SHIFT) * 4 };

struct lk_allocator {
    pthread_mutex_t lock;
    lk_memory_source source;
    lk_block *cached[CLASSES];
    int64_t now, peak;
};

void *lk__host_alloc(void *self, size_t bytes)
{
    (void)self;
    return lk__alloc_aligned(bytes);
}

void lk__host_free(void *self, void *data)
{
    (void)self;
    lk__free_aligned(data);
}

/* Returns the size class of `bytes` and sets *size to the size of its blocks: 256, 320, 384, 448, 512, 640, … */
static int allocator_size_class(size_t bytes, size_t *size)
{
    if (bytes <= (size_t)1 << MIN_SHIFT) {
        *size = (size_t)1 << MIN_SHIFT;
        return 0;
    }
    int shift = 63 - __builtin_clzll((unsigned long long)(bytes - 1));
    size_t quarter = (size_t)1 << (shift - 2);
    size_t step = (bytes - ((size_t)1 << shift) + quarter - 1) / quarter; /* 1 … 4 */
    *size = ((size_t)1 << shift) + step * quarter;
    return (shift - MIN_SHIFT) * 4 + (int)step;
}

size_t lk__allocator_block_bytes(size_t bytes)
{
    size_t size;
    allocator_size_class(bytes, &size);
    return size;
}

lk_status lk__allocator_new(lk_memory_source source, lk_allocator **allocator)
{
    *allocator = lk__calloc(1, sizeof **allocator);
    if (!*allocator)
        return LK_ERR_MEMORY;
    pthread_mutex_init(&(*allocator)->lock, NULL);
    (*allocator)->source = source;
    return LK_OK;
}

static void allocator_free_block(lk_allocator *allocator, lk_block *block)
{
    allocator->source.free(allocator->source.self, block->data);
    lk__free(block);
}

static void allocator_drop_cached(lk_allocator *allocator)
{
    for (int c = 0; c < CLASSES; c++) {
        lk_block *block = allocator->cached[c];
        allocator->cached[c] = NULL;
        while (block) {
            lk_block *next = block->next;
            allocator_free_block(allocator, block);
            block = next;
        }
    }
}

void lk__allocator_free(lk_allocator *allocator)
{
    if (!allocator)
        return;
    allocator_drop_cached(allocator);
    pthread_mutex_destroy(&allocator->lock);
    lk__free(allocator);
}

static lk_block *allocator_new_block(lk_allocator *allocator, size_t size)
{
    lk_block *block = lk__calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->size = size;
    block->data = allocator->source.alloc(allocator->source.self, size);
    if (block->data)
        return block;
    lk__free(block);
    return NULL;
}

lk_status lk__allocator_get(lk_allocator *allocator, size_t bytes, lk_block **out)
{
    size_t size;
    int c = allocator_size_class(bytes, &size);
    if (c >= CLASSES)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: %zu bytes are more than a device can have", bytes);
    bool is_clean = lk_error_status() == LK_OK;
    pthread_mutex_lock(&allocator->lock);
    lk_block *block = allocator->cached[c];
    if (block) {
        allocator->cached[c] = block->next;
    } else {
        block = allocator_new_block(allocator, size);
        if (!block) {
            allocator_drop_cached(allocator);
            if (is_clean)
                lk_error_clear();
            block = allocator_new_block(allocator, size);
        }
    }
    if (block) {
        allocator->now += (int64_t)block->size;
        allocator->peak = lk__max(allocator->peak, allocator->now);
    }
    pthread_mutex_unlock(&allocator->lock);
    *out = block;
    return block ? LK_OK : LK_ERR_MEMORY;
}

void lk__allocator_put(lk_allocator *allocator, lk_block *block)
{
    if (!block)
        return;
    if (allocator->source.has_cache) {
        lk__allocator_drop(allocator, block);
        return;
    }
    size_t size;
    int c = allocator_size_class(block->size, &size);
    pthread_mutex_lock(&allocator->lock);
    block->next = allocator->cached[c];
    allocator->cached[c] = block;
    allocator->now -= (int64_t)block->size;
    pthread_mutex_unlock(&allocator->lock);
}

void lk__allocator_drop(lk_allocator *allocator, lk_block *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&allocator->lock);
    allocator->now -= (int64_t)block->size;
    allocator_free_block(allocator, block);
    pthread_mutex_unlock(&allocator->lock);
}

void lk__allocator_trim(lk_allocator *allocator)
{
    pthread_mutex_lock(&allocator->lock);
    allocator_drop_cached(allocator);
    pthread_mutex_unlock(&allocator->lock);
}

void lk__allocator_stats(lk_allocator *allocator, int64_t *now, int64_t *peak)
{
    pthread_mutex_lock(&allocator->lock);
    *now = allocator->now;
    *peak = allocator->peak;
    pthread_mutex_unlock(&allocator->lock);
}
