#include "dist/handouts.h"

#include "base/mem.h"
#include "base/status.h"
#include "dist/tree.h"

#include <string.h>

enum { NOBODY = -1 };

typedef struct held {
    int64_t batch;
    lk_range node;
    int64_t worker; /* NOBODY: it waits for one */
    int64_t behind; /* see the header */
    bool granted, was_out;
} held;

struct lk_handouts {
    int64_t shards, max_staleness;
    int64_t next, end; /* batches that nobody has had yet */
    bool paused;
    held *open; /* [n] */
    int n, capacity;
    int64_t *order; /* [capacity]: scratch of `can_finish` */
    lk_handout_counts counts;
};

lk_status lk__handouts_new(int64_t shards, int64_t max_staleness, lk_handouts **handouts)
{
    *handouts = lk__calloc(1, sizeof **handouts);
    if (!*handouts)
        return LK_ERR_MEMORY;
    (*handouts)->shards = shards;
    (*handouts)->max_staleness = max_staleness;
    return LK_OK;
}

void lk__handouts_release(lk_handouts *handouts)
{
    if (!handouts)
        return;
    lk__free(handouts->open);
    lk__free(handouts->order);
    lk__free(handouts);
}

void lk__handouts_start(lk_handouts *h, int64_t first, int64_t count)
{
    h->next = first;
    h->end = first + count;
    h->n = 0;
    h->paused = false;
}

void lk__handouts_pause(lk_handouts *h, bool paused)
{
    h->paused = paused;
}

bool lk__handouts_are_at_rest(const lk_handouts *h)
{
    return h->n == 0;
}

void lk__handouts_stop(lk_handouts *h)
{
    h->end = h->next;
}

int lk__handouts_drop(lk_handouts *h)
{
    int before = h->n;
    for (int i = h->n - 1; i >= 0; i--)
        if (h->open[i].worker == NOBODY)
            h->open[i] = h->open[--h->n];
    return before - h->n;
}

static lk_status grow(lk_handouts *h, int n)
{
    int capacity = h->capacity ? h->capacity : 16;
    while (capacity < h->n + n)
        capacity *= 2;
    if (capacity == h->capacity)
        return LK_OK;
    held *open = lk__realloc(h->open, (size_t)capacity, sizeof *open);
    if (open)
        h->open = open;
    int64_t *order = lk__realloc(h->order, (size_t)capacity, sizeof *order);
    if (order)
        h->order = order;
    if (!open || !order)
        return LK_ERR_MEMORY;
    h->capacity = capacity;
    return LK_OK;
}

/* --- staleness ---------------------------------------------------------------------------------------------------- */

static bool is_limited(const lk_handouts *h)
{
    return h->max_staleness > 0;
}

static void insert(int64_t *order, int n, int64_t behind)
{
    for (; n > 0 && order[n - 1] < behind; n--)
        order[n] = order[n - 1];
    order[n] = behind;
}

/* Whether those that are out and not granted, but for `without`, each `more` further behind, can finish in some order,
 * together with one that is behind by `new` (below 0: without it). */
static bool can_finish(lk_handouts *h, const held *without, int64_t more, int64_t new)
{
    int n = 0;
    for (int i = 0; i < h->n; i++) {
        const held *other = &h->open[i];
        if (other != without && other->worker != NOBODY && !other->granted)
            insert(h->order, n++, other->behind + more);
    }
    if (new >= 0)
        insert(h->order, n++, new);
    for (int k = 0; k < n; k++)
        if (h->order[k] + k > h->max_staleness)
            return false;
    return true;
}

/* Pushes that may still be applied after a pull that begins now, by those who need not ask any more. */
static int64_t on_their_way(const lk_handouts *h)
{
    int64_t n = 0;
    for (int i = 0; i < h->n; i++)
        n += h->open[i].worker != NOBODY && h->open[i].granted;
    return n;
}

/* --- handing out -------------------------------------------------------------------------------------------------- */

static held *waiting(const lk_handouts *h)
{
    for (int i = 0; i < h->n; i++)
        if (h->open[i].worker == NOBODY)
            return &h->open[i];
    return NULL;
}

/* The tree's nodes at the depth where there are `nodes` of them; leaves stay whole. */
static void cut(lk_handouts *h, lk_range node, int64_t nodes)
{
    if (nodes <= 1 || node.end - node.begin <= 1) {
        h->open[h->n++] = (held){.batch = h->next, .node = node, .worker = NOBODY};
        return;
    }
    int64_t middle = lk__tree_middle(node);
    cut(h, (lk_range){node.begin, middle}, nodes / 2);
    cut(h, (lk_range){middle, node.end}, nodes / 2);
}

static lk_status open_next(lk_handouts *h, int64_t nodes)
{
    bool shared = h->max_staleness == 0;
    if (h->next == h->end || h->paused || (shared && h->n > 0))
        return LK_OK;
    nodes = shared ? nodes < h->shards ? nodes : h->shards : 1;
    LK_TRY(grow(h, (int)(2 * nodes)));
    cut(h, (lk_range){0, h->shards}, nodes);
    h->next++;
    return LK_OK;
}

/* Of a batch that workers share others have the rest, and the next one needs its update. */
static bool is_held_back(const lk_handouts *h)
{
    return h->max_staleness == 0 && h->n > 0 && h->next < h->end;
}

lk_status lk__handouts_take(lk_handouts *h, int64_t worker, int64_t nodes, lk_handout *handout, lk_take *take)
{
    *take = LK_TAKE_NONE;
    LK_TRY(grow(h, 1));
    int64_t behind = is_limited(h) ? on_their_way(h) : 0;
    if (is_limited(h) && !can_finish(h, NULL, 0, behind)) {
        *take = waiting(h) || h->next < h->end ? LK_TAKE_HELD_BACK : LK_TAKE_NONE;
        return LK_OK;
    }
    if (!waiting(h))
        LK_TRY(open_next(h, nodes));
    held *one = waiting(h);
    if (!one) {
        *take = is_held_back(h) ? LK_TAKE_HELD_BACK : LK_TAKE_NONE;
        return LK_OK;
    }
    one->worker = worker;
    one->behind = behind;
    one->granted = !is_limited(h);
    h->counts.again += one->was_out;
    h->counts.handed_out += !one->was_out;
    one->was_out = true;
    *handout = (lk_handout){one->batch, one->node, one->granted};
    *take = LK_TAKEN;
    return LK_OK;
}

lk_grant lk__handouts_grant(lk_handouts *h, int64_t worker, int64_t batch)
{
    held *mine = NULL;
    for (int i = 0; i < h->n && !mine; i++)
        if (h->open[i].worker == worker && h->open[i].batch == batch)
            mine = &h->open[i];
    if (!mine)
        return LK_GRANT_NEVER;
    if (mine->granted)
        return LK_GRANTED;
    for (int i = 0; i < h->n; i++) {
        const held *other = &h->open[i];
        if (other != mine && other->worker != NOBODY && other->behind + 1 > h->max_staleness)
            return LK_GRANT_LATER;
    }
    if (!can_finish(h, mine, 1, -1))
        return LK_GRANT_LATER;
    for (int i = 0; i < h->n; i++)
        h->open[i].behind += &h->open[i] != mine;
    mine->granted = true;
    return LK_GRANTED;
}

/* --- finishing ---------------------------------------------------------------------------------------------------- */

static bool is_open(const lk_handouts *h, int64_t batch)
{
    for (int i = 0; i < h->n; i++)
        if (h->open[i].batch == batch)
            return true;
    return false;
}

lk_finish lk__handouts_finish(lk_handouts *h, int64_t batch, lk_range node)
{
    for (int i = 0; i < h->n; i++) {
        const held *one = &h->open[i];
        if (one->batch != batch || one->node.begin != node.begin || one->node.end != node.end)
            continue;
        h->open[i] = h->open[--h->n];
        return is_open(h, batch) ? LK_FINISHED_PART : LK_FINISHED_BATCH;
    }
    h->counts.repeated++;
    return LK_FINISHED_BEFORE;
}

int lk__handouts_give_back(lk_handouts *h, int64_t worker)
{
    int n = 0;
    for (int i = 0; i < h->n; i++) {
        held *one = &h->open[i];
        if (one->worker != worker)
            continue;
        one->worker = NOBODY;
        one->granted = false;
        n++;
    }
    return n;
}

bool lk__handouts_are_finished(const lk_handouts *h)
{
    return h->next == h->end && h->n == 0;
}

lk_handout_counts lk__handouts_counts(const lk_handouts *h)
{
    return h->counts;
}
