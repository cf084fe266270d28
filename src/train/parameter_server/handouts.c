#include "train/parameter_server/handouts.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "dist/sum/tree.h"

enum { NOBODY = -1 };

typedef struct held {
    int64_t batch;
    lk_range node;
    int64_t worker; /* NOBODY: it waits for a worker */
    int64_t behind; /* see the header */
    bool granted;
    bool was_out; /* it has been handed out before */
} held;

struct lk_handouts {
    int64_t shards, max_staleness;
    int64_t next, end; /* batches not yet begun: [next, end) */
    bool paused;
    held *open; /* [n] */
    int n;
    int64_t capacity; /* of open and order */
    int64_t *order;   /* scratch of handouts_can_finish */
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

/* Makes space for n more hand-outs. */
static lk_status handouts_grow(lk_handouts *h, int n)
{
    int64_t capacity = h->capacity;
    LK_TRY(LK_GROW(h->open, &capacity, h->n + n));
    return LK_GROW(h->order, &h->capacity, h->n + n);
}

/* --- staleness ---------------------------------------------------------------------------------------------------- */

static bool handouts_staleness_is_limited(const lk_handouts *h)
{
    return h->max_staleness > 0;
}

static void handouts_insert_descending(int64_t *order, int n, int64_t behind)
{
    for (; n > 0 && order[n - 1] < behind; n--)
        order[n] = order[n - 1];
    order[n] = behind;
}

/* Returns whether all hand-outs that are out and not granted can finish in some order. Leaves out `without`, counts the
 * others as `more` further behind, and adds one that is behind by `new` (negative: none). */
static bool handouts_can_finish(lk_handouts *h, const held *without, int64_t more, int64_t new)
{
    int n = 0;
    for (int i = 0; i < h->n; i++) {
        const held *other = &h->open[i];
        if (other != without && other->worker != NOBODY && !other->granted)
            handouts_insert_descending(h->order, n++, other->behind + more);
    }
    if (new >= 0)
        handouts_insert_descending(h->order, n++, new);
    for (int k = 0; k < n; k++)
        if (h->order[k] + k > h->max_staleness)
            return false;
    return true;
}

/* Counts granted pushes that may still be applied after a pull that begins now. */
static int64_t handouts_pushes_granted(const lk_handouts *h)
{
    int64_t n = 0;
    for (int i = 0; i < h->n; i++)
        n += h->open[i].worker != NOBODY && h->open[i].granted;
    return n;
}

/* --- handing out -------------------------------------------------------------------------------------------------- */

/* Returns a hand-out that waits and has at least as many shards as the worker has devices. */
static held *handouts_waiting(const lk_handouts *h, int64_t devices)
{
    for (int i = 0; i < h->n; i++)
        if (h->open[i].worker == NOBODY && h->open[i].node.end - h->open[i].node.begin >= devices)
            return &h->open[i];
    return NULL;
}

/* Returns whether hand-outs wait, and no worker has one. */
static bool handouts_all_wait(const lk_handouts *h)
{
    for (int i = 0; i < h->n; i++)
        if (h->open[i].worker != NOBODY)
            return false;
    return h->n > 0;
}

/* Adds the next batch to the open hand-outs, cut into `nodes` nodes of the tree; a single shard is not cut. */
static void handouts_cut(lk_handouts *h, lk_range node, int64_t nodes)
{
    if (nodes <= 1 || node.end - node.begin <= 1) {
        h->open[h->n++] = (held){.batch = h->next, .node = node, .worker = NOBODY};
        return;
    }
    int64_t middle = lk__tree_middle(node);
    handouts_cut(h, (lk_range){node.begin, middle}, nodes / 2);
    handouts_cut(h, (lk_range){middle, node.end}, nodes / 2);
}

static lk_status handouts_open_next(lk_handouts *h, int64_t nodes)
{
    bool shared = h->max_staleness == 0;
    if (h->next == h->end || h->paused || (shared && h->n > 0))
        return LK_OK;
    nodes = shared ? lk__min(nodes, h->shards) : 1;
    LK_TRY(handouts_grow(h, (int)(2 * nodes)));
    handouts_cut(h, (lk_range){0, h->shards}, nodes);
    h->next++;
    return LK_OK;
}

lk_status lk__handouts_take(lk_handouts *h, int64_t worker, int64_t devices, int64_t nodes, lk_handout *handout,
                            lk_take *take)
{
    *take = LK_TAKE_NONE;
    LK_TRY(handouts_grow(h, 1));
    int64_t behind = handouts_staleness_is_limited(h) ? handouts_pushes_granted(h) : 0;
    if (handouts_staleness_is_limited(h) && !handouts_can_finish(h, NULL, 0, behind)) {
        *take = handouts_waiting(h, devices) || h->next < h->end ? LK_TAKE_HELD_BACK : LK_TAKE_NONE;
        return LK_OK;
    }
    if (!handouts_waiting(h, devices))
        LK_TRY(handouts_open_next(h, nodes));
    held *one = handouts_waiting(h, devices);
    if (!one && handouts_all_wait(h)) {
        handout->batch = h->open[0].batch;
        *take = LK_TAKE_TOO_SMALL;
        return LK_OK;
    }
    if (!one) {
        /* If others have the rest of a shared batch, the next batch needs its update. */
        *take = h->max_staleness == 0 && h->n > 0 && h->next < h->end ? LK_TAKE_HELD_BACK : LK_TAKE_NONE;
        return LK_OK;
    }
    one->worker = worker;
    one->behind = behind;
    one->granted = !handouts_staleness_is_limited(h);
    h->counts.again += one->was_out;
    h->counts.handed_out += !one->was_out;
    one->was_out = true;
    *handout = (lk_handout){one->batch, one->node, one->granted};
    *take = LK_TAKEN;
    return LK_OK;
}

bool lk__handouts_join(lk_handouts *h, int64_t batch)
{
    const lk_range whole = {0, h->shards};
    bool is_cut = false;
    for (int i = 0; i < h->n; i++)
        is_cut |= h->open[i].batch == batch && h->open[i].node.end - h->open[i].node.begin < h->shards;
    for (int i = h->n - 1; is_cut && i >= 0; i--)
        if (h->open[i].batch == batch)
            h->open[i] = h->open[--h->n];
    if (is_cut)
        h->open[h->n++] = (held){.batch = batch, .node = whole, .worker = NOBODY, .was_out = true};
    return is_cut;
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
    if (!handouts_can_finish(h, mine, 1, -1))
        return LK_GRANT_LATER;
    for (int i = 0; i < h->n; i++)
        h->open[i].behind += &h->open[i] != mine;
    mine->granted = true;
    return LK_GRANTED;
}

/* --- finishing ---------------------------------------------------------------------------------------------------- */

static bool handouts_batch_is_open(const lk_handouts *h, int64_t batch)
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
        return handouts_batch_is_open(h, batch) ? LK_FINISHED_PART : LK_FINISHED_BATCH;
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
