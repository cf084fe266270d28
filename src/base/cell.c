#include "base/cell.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LK_SANITIZED 1
#endif
#endif
#ifndef LK_SANITIZED
#define LK_SANITIZED 0
#endif

enum { BATCH = 32, MOST_BATCHES = 64 };

/* A free one. */
typedef struct cell {
    struct cell *next;
    struct cell *next_batch; /* of the first cell of a whole batch */
} cell;

/* A thread's: up to two batches, so that taking and giving back in turns stays in the thread. */
typedef struct cell_cache {
    cell *loose; /* n_loose of them, at most a batch */
    int n_loose;
    cell *batch;  /* a whole one, or NULL */
    bool is_kept; /* given back when the thread ends */
} cell_cache;

static _Thread_local cell_cache own;

static pthread_mutex_t batches_lock = PTHREAD_MUTEX_INITIALIZER;
static cell *batches;
static int n_batches;

static void free_list(cell *list)
{
    while (list) {
        cell *next = list->next;
        lk__free_aligned(list);
        list = next;
    }
}

/* --- batches of all threads --------------------------------------------------------------------------------------- */

static cell *take_batch(void)
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

static void give_batch(cell *batch)
{
    pthread_mutex_lock(&batches_lock);
    bool has_room = n_batches < MOST_BATCHES;
    if (has_room) {
        batch->next_batch = batches;
        batches = batch;
        n_batches++;
    }
    pthread_mutex_unlock(&batches_lock);
    if (!has_room)
        free_list(batch);
}

/* --- a thread's cells --------------------------------------------------------------------------------------------- */

static pthread_key_t at_thread_exit;
static bool has_key;

static void end_thread(void *argument)
{
    cell_cache *cache = argument;
    free_list(cache->loose);
    free_list(cache->batch);
    *cache = (cell_cache){0};
}

static void make_key(void)
{
    has_key = pthread_key_create(&at_thread_exit, end_thread) == 0;
}

/* Where the thread's end would not be noticed it keeps nothing. */
static bool keep_own(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (own.is_kept)
        return true;
    pthread_once(&once, make_key);
    own.is_kept = has_key && pthread_setspecific(at_thread_exit, &own) == 0;
    return own.is_kept;
}

static bool is_caching(void)
{
    return !LK_SANITIZED && !lk__mem_is_failing();
}

/* Another thread gave it back. */
static void prefetch(const cell *next)
{
    for (size_t at = 0; next && at < LK_CELL_BYTES; at += LK_ALIGNMENT)
        lk__prefetch_to_write((const char *)next + at);
}

static cell *take_own(void)
{
    if (!own.loose && keep_own()) {
        own.loose = own.batch ? own.batch : take_batch();
        own.n_loose = own.loose ? BATCH : 0;
        own.batch = NULL;
    }
    cell *taken = own.loose;
    if (taken) {
        own.loose = taken->next;
        own.n_loose--;
        prefetch(own.loose);
    }
    return taken;
}

void *lk__cell_new(void)
{
    void *memory = is_caching() ? take_own() : NULL;
    if (!memory)
        memory = lk__alloc_aligned(LK_CELL_BYTES);
    return memory ? memset(memory, 0, LK_CELL_BYTES) : NULL;
}

void lk__cell_free(void *memory)
{
    if (!memory || !is_caching() || !keep_own()) {
        lk__free_aligned(memory);
        return;
    }
    if (own.n_loose == BATCH) {
        if (own.batch)
            give_batch(own.batch);
        own.batch = own.loose;
        own.loose = NULL;
        own.n_loose = 0;
    }
    cell *freed = memory;
    freed->next = own.loose;
    own.loose = freed;
    own.n_loose++;
}
