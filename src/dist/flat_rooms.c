#include "dist/flat_rooms.h"

#include "base/mem.h"
#include "core/backend.h"
#include "core/tensor.h"

/* The same number of elements on every device. Free where nobody else holds one of them. */
typedef struct lk_room_set {
    struct lk_room_set *next;
    int64_t words;
    lk_tensor *rooms[]; /* [n] */
} room_set;

static void release_set(const lk_rooms *r, room_set *set)
{
    for (int d = 0; d < r->n; d++)
        lk_tensor_release(set->rooms[d]);
    lk__free(set);
}

static bool is_free(const lk_rooms *r, const room_set *set)
{
    for (int d = 0; d < r->n; d++)
        if (!lk__refcount_is_one(&set->rooms[d]->references) ||
            !lk__refcount_is_one(&set->rooms[d]->storage->references))
            return false;
    return true;
}

static bool is_poisoned(const lk_rooms *r, const room_set *set)
{
    for (int d = 0; d < r->n; d++)
        if (set->rooms[d]->storage->error)
            return true;
    return false;
}

/* Free sets with the marks of a failure go: what it was is known to those who used them. */
static void drop_poisoned(lk_rooms *r, const lk_device *links)
{
    for (room_set **link = &r->sets; *link;) {
        room_set *set = *link;
        if (!is_free(r, set) || !is_poisoned(r, set)) {
            link = &set->next;
            continue;
        }
        *link = set->next;
        lk__event_wait(lk__queue_last(links->queue));
        release_set(r, set);
    }
}

static lk_status new_set(lk_rooms *r, int64_t words, room_set **out)
{
    room_set *set = lk__calloc(1, sizeof *set + (size_t)r->n * sizeof(lk_tensor *));
    if (!set)
        return LK_ERR_MEMORY;
    set->words = words;
    for (int d = 0; d < r->n; d++) {
        lk_status status = lk__tensor_new(r->devices[d], LK_F32, LK_SHAPE(words), &set->rooms[d]);
        if (status != LK_OK) {
            release_set(r, set);
            return status;
        }
    }
    set->next = r->sets;
    *out = r->sets = set;
    return LK_OK;
}

/* A large set for a small bucket would be missing when the next large one comes. */
static room_set *find_set(const lk_rooms *r, int64_t words)
{
    for (room_set *set = r->sets; set; set = set->next)
        if (set->words >= words && set->words / 2 <= words && is_free(r, set))
            return set;
    return NULL;
}

lk_status lk__rooms_take(lk_rooms *r, lk_device *links, int64_t words, lk_tensor **taken)
{
    drop_poisoned(r, links);
    room_set *set = find_set(r, words);
    if (!set)
        LK_TRY(new_set(r, words, &set));
    for (int d = 0; d < r->n; d++)
        taken[d] = lk_tensor_retain(set->rooms[d]);
    return LK_OK;
}

void lk__rooms_release(lk_rooms *r)
{
    while (r->sets) {
        room_set *set = r->sets;
        r->sets = set->next;
        release_set(r, set);
    }
}
