#include "base/cell.h"

#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <string.h>

enum { BATCH = 32, MOST_BATCHES = 64 };

/* A free cell. */
typedef struct cell {
    struct cell *next;
    struct cell *next_batch; /* next batch, in the first cell of a full batch */
} cell;

/* The free cells of a thread: up to two batches, so that alternating new and free stays within the thread. */
typedef struct cell_cache {
    cell *loose; /* list of n_loose cells, at most a batch */
    int n_loose;
    cell *batch;  /* a full batch, or NULL */
    bool is_kept; /* freed when the thread ends */
} cell_cache;

static _Thread_local cell_cache own;

static pthread_mutex_t batches_lock = PTHREAD_MUTEX_INITIALIZER;
static cell *batches;
static int n_batches;

static void cell_free_list(cell *list)
{
    while (list) {
        cell *next = list->next;
        lk__free_aligned(list);
        list = next;
    }
}

/* --- batches of all threads --------------------------------------------------------------------------------------- */

static cell *cell_take_batch(void)
{
    pthread_mutex_lock(&batches_lock);
    cell *batch = batches;
    if (batch) {
        batches = batch->next_batch;
        n_batches--;
    }
    pthread_mutex_unlock(&batches_lock);
    return batch;
}

static void cell_give_batch(cell *batch)
{
    pthread_mutex_lock(&batches_lock);
    bool fits = n_batches < MOST_BATCHES;
    if (fits) {
        batch->next_batch = batches;
        batches = batch;
        n_batches++;
    }
    pthread_mutex_unlock(&batches_lock);
    if (!fits)
        cell_free_list(batch);
}

/* --- a thread's cells --------------------------------------------------------------------------------------------- */

static void cell_free_own(void)
{
    cell_free_list(own.loose);
    cell_free_list(own.batch);
    own = (cell_cache){0};
}

/* Returns whether this thread may keep cells: only if they can be freed when it ends. */
static bool cell_may_keep_own(void)
{
    if (!own.is_kept)
        own.is_kept = lk__at_thread_end(cell_free_own);
    return own.is_kept;
}

/* Prefetches the next cell, whose memory is in the cache of the thread that freed it. */
static void cell_prefetch(const cell *next)
{
    for (size_t at = 0; next && at < LK_CELL_BYTES; at += LK_ALIGNMENT)
        lk__prefetch_to_write((const char *)next + at);
}

static cell *cell_take_own(void)
{
    if (!own.loose && cell_may_keep_own()) {
        own.loose = own.batch ? own.batch : cell_take_batch();
        own.n_loose = own.loose ? BATCH : 0;
        own.batch = NULL;
    }
    cell *taken = own.loose;
    if (taken) {
        own.loose = taken->next;
        own.n_loose--;
        cell_prefetch(own.loose);
    }
    return taken;
}

void *lk__cell_new(void)
{
    void *memory = lk__mem_may_keep() ? cell_take_own() : NULL;
    if (!memory)
        memory = lk__alloc_aligned(LK_CELL_BYTES);
    return memory ? memset(memory, 0, LK_CELL_BYTES) : NULL;
}

void lk__cell_free(void *memory)
{
    if (!memory || !lk__mem_may_keep() || !cell_may_keep_own()) {
        lk__free_aligned(memory);
        return;
    }
    if (own.n_loose == BATCH) {
        if (own.batch)
            cell_give_batch(own.batch);
        own.batch = own.loose;
        own.loose = NULL;
        own.n_loose = 0;
    }
    cell *freed = memory;
    freed->next = own.loose;
    own.loose = freed;
    own.n_loose++;
}
