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

static void buffer_set_release(const lk_exchange_buffers *b, buffer_set *set)
{
    for (int d = 0; d < b->n; d++)
        lk_tensor_release(set->buffers[d]);
    lk__free(set);
}

static bool buffer_set_is_free(const lk_exchange_buffers *b, const buffer_set *set)
{
    for (int d = 0; d < b->n; d++)
        if (!lk__refcount_is_one(&set->buffers[d]->references) ||
            !lk__refcount_is_one(&set->buffers[d]->storage->references))
            return false;
    return true;
}

static bool buffer_set_is_poisoned(const lk_exchange_buffers *b, const buffer_set *set)
{
    for (int d = 0; d < b->n; d++)
        if (set->buffers[d]->storage->error)
            return true;
    return false;
}

/* Drops free sets whose storage is poisoned by a failure. The failure was already reported to those who used them. */
static void exchange_buffer_drop_poisoned_sets(lk_exchange_buffers *b, const lk_device *links)
{
    for (buffer_set **link = &b->sets; *link;) {
        buffer_set *set = *link;
        if (!buffer_set_is_free(b, set) || !buffer_set_is_poisoned(b, set)) {
            link = &set->next;
            continue;
        }
        *link = set->next;
        lk__event_wait(lk__queue_last(links->queue));
        buffer_set_release(b, set);
    }
}

static lk_status buffer_set_new(lk_exchange_buffers *b, int64_t words, buffer_set **out)
{
    buffer_set *set = lk__calloc(1, sizeof *set + (size_t)b->n * sizeof(lk_tensor *));
    if (!set)
        return LK_ERR_MEMORY;
    set->words = words;
    for (int d = 0; d < b->n; d++) {
        lk_status status = lk__tensor_new(b->devices[d], LK_F32, LK_SHAPE(words), &set->buffers[d]);
        if (status != LK_OK) {
            buffer_set_release(b, set);
            return status;
        }
    }
    set->next = b->sets;
    *out = b->sets = set;
    return LK_OK;
}

/* Finds a free set that is large enough, but at most twice as large: a large set stays free for the next large bucket.
 */
static buffer_set *buffer_set_find(const lk_exchange_buffers *b, int64_t words)
{
    for (buffer_set *set = b->sets; set; set = set->next)
        if (set->words >= words && set->words / 2 <= words && buffer_set_is_free(b, set))
            return set;
    return NULL;
}

lk_status lk__exchange_buffers_take(lk_exchange_buffers *b, lk_device *links, int64_t words, lk_tensor **taken)
{
    exchange_buffer_drop_poisoned_sets(b, links);
    buffer_set *set = buffer_set_find(b, words);
    if (!set)
        LK_TRY(buffer_set_new(b, words, &set));
    for (int d = 0; d < b->n; d++)
        taken[d] = lk_tensor_retain(set->buffers[d]);
    return LK_OK;
}

void lk__exchange_buffers_release(lk_exchange_buffers *b)
{
    while (b->sets) {
        buffer_set *set = b->sets;
        b->sets = set->next;
        buffer_set_release(b, set);
    }
}
