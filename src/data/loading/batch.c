#include "data/loading/batch.h"

#include "base/mem.h"
#include "base/refcount.h"
#include "base/status.h"

#include <pthread.h>

typedef struct slot {
    lk_batch batch; /* must come first: lk_batch_release casts its pointer to the slot */
    lk_refcount references;
    lk_batch_pool *pool;
    lk_batch_memory memory; /* one block, which begins at memory.images */
    struct slot *next_free;
    struct slot *next_made;
} slot;

struct lk_batch_pool {
    lk_refcount references; /* the owner and every taken slot */
    size_t image_bytes;
    size_t label_bytes;
    size_t index_bytes;
    pthread_mutex_t mutex; /* guards the lists */
    slot *free;            /* slots that no one holds */
    slot *made;            /* all slots */
};

static bool batch_aligned_bytes(int64_t count, size_t size, size_t *bytes)
{
    if (!lk__mul_size((size_t)count, size, bytes) || *bytes > PTRDIFF_MAX / 4)
        return false;
    *bytes = (*bytes + LK_ALIGNMENT - 1) & ~(size_t)(LK_ALIGNMENT - 1);
    return true;
}

static slot *batch_slot_new(lk_batch_pool *pool)
{
    slot *s = lk__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    char *block = lk__alloc_aligned(pool->image_bytes + pool->label_bytes + pool->index_bytes);
    if (!block) {
        lk__free(s);
        return NULL;
    }
    s->pool = pool;
    s->memory.images = (void *)block;
    s->memory.labels = (void *)(block + pool->image_bytes);
    s->memory.indices = (void *)(block + pool->image_bytes + pool->label_bytes);
    s->batch.images = pool->image_bytes > 0 ? s->memory.images : NULL;
    s->batch.labels = s->memory.labels;
    s->batch.indices = s->memory.indices;
    return s;
}

static void batch_pool_destroy(lk_batch_pool *pool)
{
    while (pool->made) {
        slot *s = pool->made;
        pool->made = s->next_made;
        lk__free_aligned(s->memory.images);
        lk__free(s);
    }
    pthread_mutex_destroy(&pool->mutex);
    lk__free(pool);
}

lk_status lk__batch_pool_new(int64_t samples, int64_t pixels, int initial, lk_batch_pool **pool)
{
    lk_batch_pool *p = lk__calloc(1, sizeof *p);
    if (!p)
        return LK_ERR_MEMORY;
    lk__refcount_init(&p->references);
    pthread_mutex_init(&p->mutex, NULL);
    int64_t values;
    if (!lk__mul_i64(samples, pixels, &values) || !batch_aligned_bytes(values, sizeof(float), &p->image_bytes) ||
        !batch_aligned_bytes(samples, sizeof(int32_t), &p->label_bytes) ||
        !batch_aligned_bytes(samples, sizeof(int64_t), &p->index_bytes)) {
        batch_pool_destroy(p);
        LK_FAIL(LK_ERR_MEMORY, "out of memory: a batch exceeds the address space");
    }
    for (int i = 0; i < initial; i++) {
        slot *s = batch_slot_new(p);
        if (!s) {
            batch_pool_destroy(p);
            return LK_ERR_MEMORY;
        }
        s->next_made = s->next_free = p->made;
        p->made = p->free = s;
    }
    *pool = p;
    return LK_OK;
}

void lk__batch_pool_release(lk_batch_pool *pool)
{
    if (pool && lk__refcount_release(&pool->references))
        batch_pool_destroy(pool);
}

/* Takes a slot off the list of free ones. NULL: none is free. */
static slot *batch_pool_pop_free(lk_batch_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    slot *s = pool->free;
    if (s)
        pool->free = s->next_free;
    pthread_mutex_unlock(&pool->mutex);
    return s;
}

lk_status lk__batch_pool_take(lk_batch_pool *pool, lk_batch **batch, lk_batch_memory *memory)
{
    slot *s = batch_pool_pop_free(pool);
    if (!s) {
        s = batch_slot_new(pool);
        if (!s)
            return LK_ERR_MEMORY;
        pthread_mutex_lock(&pool->mutex);
        s->next_made = pool->made;
        pool->made = s;
        pthread_mutex_unlock(&pool->mutex);
    }
    lk__refcount_init(&s->references);
    lk__refcount_retain(&pool->references);
    *memory = s->memory;
    *batch = &s->batch;
    return LK_OK;
}

lk_batch *lk_batch_retain(lk_batch *batch)
{
    if (batch)
        lk__refcount_retain(&((slot *)batch)->references);
    return batch;
}

void lk_batch_release(lk_batch *batch)
{
    slot *s = (slot *)batch;
    if (!s || !lk__refcount_release(&s->references))
        return;
    lk_batch_pool *pool = s->pool;
    pthread_mutex_lock(&pool->mutex);
    s->next_free = pool->free;
    pool->free = s;
    pthread_mutex_unlock(&pool->mutex);
    lk__batch_pool_release(pool);
}
