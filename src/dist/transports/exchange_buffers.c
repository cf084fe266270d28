#include "dist/transports/exchange_buffers.h"

#include "base/mem.h"
#include "core/backend.h"
#include "core/tensor.h"

/* One buffer of the same size on every device. A set is free when no exchange or sum holds a reference to any of them.
 */
typedef struct lk_exchange_buffer_set {
    struct lk_exchange_buffer_set *next;
    int64_t words;
    lk_tensor *buffers[]; /* [n] */
} buffer_set;

static void exchange_buffers_release_set(const lk_exchange_buffers *b, buffer_set *set)
{
    for (int d = 0; d < b->n; d++)
        lk_tensor_release(set->buffers[d]);
    lk__free(set);
}

static bool exchange_buffers_set_is_free(const lk_exchange_buffers *b, const buffer_set *set)
{
    for (int d = 0; d < b->n; d++)
        if (!lk__refcount_is_one(&set->buffers[d]->references) ||
            !lk__refcount_is_one(&set->buffers[d]->storage->references))
            return false;
    return true;
}

static bool exchange_buffers_set_is_poisoned(const lk_exchange_buffers *b, const buffer_set *set)
{
    for (int d = 0; d < b->n; d++)
        if (set->buffers[d]->storage->error)
            return true;
    return false;
}

/* Drops free sets whose storage is poisoned by a failure. The failure was already reported to those who used them. */
static void exchange_buffers_drop_poisoned(lk_exchange_buffers *b, const lk_device *links)
{
    for (buffer_set **link = &b->sets; *link;) {
        buffer_set *set = *link;
        if (!exchange_buffers_set_is_free(b, set) || !exchange_buffers_set_is_poisoned(b, set)) {
            link = &set->next;
            continue;
        }
        *link = set->next;
        lk__event_wait(lk__queue_last(links->queue));
        exchange_buffers_release_set(b, set);
    }
}

static lk_status exchange_buffers_new_set(lk_exchange_buffers *b, int64_t words, buffer_set **out)
{
    buffer_set *set = lk__calloc(1, sizeof *set + (size_t)b->n * sizeof(lk_tensor *));
    if (!set)
        return LK_ERR_MEMORY;
    set->words = words;
    for (int d = 0; d < b->n; d++) {
        lk_status status = lk__tensor_new(b->devices[d], LK_F32, LK_SHAPE(words), &set->buffers[d]);
        if (status != LK_OK) {
            exchange_buffers_release_set(b, set);
            return status;
        }
    }
    set->next = b->sets;
    *out = b->sets = set;
    return LK_OK;
}

/* Finds a free set that is large enough, but at most twice as large: a large set stays free for the next large bucket.
 */
static buffer_set *exchange_buffers_find_set(const lk_exchange_buffers *b, int64_t words)
{
    for (buffer_set *set = b->sets; set; set = set->next)
        if (set->words >= words && set->words / 2 <= words && exchange_buffers_set_is_free(b, set))
            return set;
    return NULL;
}

lk_status lk__exchange_buffers_take(lk_exchange_buffers *b, lk_device *links, int64_t words, lk_tensor **taken)
{
    exchange_buffers_drop_poisoned(b, links);
    buffer_set *set = exchange_buffers_find_set(b, words);
    if (!set)
        LK_TRY(exchange_buffers_new_set(b, words, &set));
    for (int d = 0; d < b->n; d++)
        taken[d] = lk_tensor_retain(set->buffers[d]);
    return LK_OK;
}

void lk__exchange_buffers_release(lk_exchange_buffers *b)
{
    while (b->sets) {
        buffer_set *set = b->sets;
        b->sets = set->next;
        exchange_buffers_release_set(b, set);
    }
}
