/* A sum over shards keeps, for every quantity and device, the tree nodes it has so far as a stack: a new shard is
 * pushed as a leaf, and the nodes of the largest subtree that it completes are added up in one pass over memory. A
 * quantity that every shard has given can be exchanged, whatever the others are waiting for. */
#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "dist/elsewhere.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"

#include <string.h>

/* Of one quantity on one device. */
typedef struct node_stack {
    int64_t next; /* the shard expected next */
    int64_t depth;
} node_stack;

struct lk_shard_sum {
    lk_strategy *strategy;
    int64_t shards;
    int k, n;           /* devices, quantities */
    lk_range *owned;    /* [k]: a device's shards */
    int64_t capacity;   /* a range is covered by at most two nodes a level; a leaf is pushed before anything is added */
    node_stack *stacks; /* [k][n] */
    lk_range *ranges;   /* [k][capacity][n]: of the nodes in the stacks … */
    lk_tensor **values; /* … and what they have: one reference each, NULL where absent */

    /* Quantities that every shard has given, in the order in which that came about. Of these, ready[0 … n_begun) are
     * being exchanged, and the first n_before were there when an exchange was last asked for. */
    int64_t *missing; /* [n]: shards that have not given it */
    int *ready;       /* [n] */
    int n_ready, n_before, n_begun;
    lk_tensor **sums, **begun; /* [k][n]: see lk_bucket */
    lk_shared_sum_job *jobs;
    lk_tree_node *nodes; /* scratch: what covers all shards, or a subtree */
    lk_tensor **subtree; /* [n], scratch: sums of what a shard completes */
    int *all;            /* [n]: 0, 1, … */
    lk_shape *shapes;    /* [n], and dtypes: of the quantities, for sums over links */
    lk_dtype *dtypes;

    /* Quantities are then exchanged in an order that all processes have, whenever they are ready: the buckets that are
     * complete here. NULL: all shards are of this process. */
    lk_elsewhere *elsewhere;
};

static int64_t log2_ceil(int64_t n)
{
    int64_t bits = 0;
    while (((int64_t)1 << bits) < n)
        bits++;
    return bits;
}

static lk_status allocate(lk_shard_sum *sum)
{
    size_t k = (size_t)sum->k, n = (size_t)sum->n, nodes = k * (size_t)sum->capacity;
    sum->owned = lk__calloc(k, sizeof *sum->owned);
    sum->stacks = lk__calloc(k * n, sizeof *sum->stacks);
    sum->ranges = lk__calloc(nodes * n, sizeof *sum->ranges);
    sum->values = lk__calloc(nodes * n, sizeof *sum->values);
    sum->missing = lk__calloc(n, sizeof *sum->missing);
    sum->ready = lk__calloc(n, sizeof *sum->ready);
    sum->sums = lk__calloc(k * n, sizeof *sum->sums);
    sum->begun = lk__calloc(k * n, sizeof *sum->begun);
    sum->nodes = lk__calloc(nodes, sizeof *sum->nodes);
    sum->subtree = lk__calloc(n, sizeof *sum->subtree);
    sum->all = lk__calloc(n, sizeof *sum->all);
    sum->shapes = lk__calloc(n, sizeof *sum->shapes);
    sum->dtypes = lk__calloc(n, sizeof *sum->dtypes);
    bool complete = sum->owned && sum->stacks && sum->ranges && sum->values && sum->missing && sum->ready &&
                    sum->sums && sum->begun && sum->nodes && sum->subtree && sum->all && sum->shapes && sum->dtypes;
    return complete ? LK_OK : LK_ERR_MEMORY;
}

/* Position p of the stack of quantity i on device d. */
static int64_t slot(const lk_shard_sum *sum, int d, int64_t p, int i)
{
    return (d * sum->capacity + p) * sum->n + i;
}

static node_stack *stack_of(const lk_shard_sum *sum, int d, int i)
{
    return &sum->stacks[(int64_t)d * sum->n + i];
}

/* Of all devices of this process. */
static int64_t shards_here(const lk_shard_sum *sum)
{
    return sum->owned[sum->k - 1].end - sum->owned[0].begin;
}

static void drop(lk_tensor **tensor)
{
    lk_tensor_release(*tensor);
    *tensor = NULL;
}

/* Ready for the next step. */
static void empty(lk_shard_sum *sum)
{
    for (int i = 0; i < sum->n; i++) {
        for (int d = 0; d < sum->k; d++) {
            node_stack *stack = stack_of(sum, d, i);
            while (stack->depth > 0)
                drop(&sum->values[slot(sum, d, --stack->depth, i)]);
            stack->next = sum->owned[d].begin;
            drop(&sum->sums[(int64_t)d * sum->n + i]);
            drop(&sum->begun[(int64_t)d * sum->n + i]);
        }
        drop(&sum->subtree[i]);
        sum->missing[i] = shards_here(sum);
    }
    lk__shared_sum_release(&sum->jobs);
    sum->n_ready = sum->n_before = sum->n_begun = 0;
}

static void free_arrays(lk_shard_sum *sum)
{
    lk__free(sum->owned);
    lk__free(sum->stacks);
    lk__free(sum->ranges);
    lk__free(sum->values);
    lk__free(sum->missing);
    lk__free(sum->ready);
    lk__free(sum->sums);
    lk__free(sum->begun);
    lk__free(sum->nodes);
    lk__free(sum->subtree);
    lk__free(sum->all);
    lk__free(sum->shapes);
    lk__free(sum->dtypes);
    lk__elsewhere_release(sum->elsewhere);
    lk__free(sum);
}

/* sum->owned is set. */
static lk_status look_elsewhere(lk_shard_sum *sum)
{
    const lk_strategy *s = sum->strategy;
    if (!s->group)
        return LK_OK;
    lk_elsewhere_opts opts = {.shards = sum->shards,
                              .first = s->first,
                              .k = s->n_devices,
                              .ranks = s->ranks,
                              .n = sum->n,
                              .shapes = sum->shapes,
                              .dtypes = sum->dtypes};
    LK_TRY(lk__elsewhere_new(&opts, &sum->elsewhere));
    lk__free(sum->nodes);
    sum->nodes =
        lk__calloc((size_t)lk__elsewhere_nodes(sum->elsewhere) + (size_t)(sum->k * sum->capacity), sizeof *sum->nodes);
    return sum->nodes ? LK_OK : LK_ERR_MEMORY;
}

lk_shard_sum *lk_shard_sum_new(lk_strategy *strategy, int64_t shards, int n)
{
    int k = lk_strategy_num_replicas(strategy), ranks = lk_strategy_ranks(strategy);
    if (shards < ranks || n < 0) {
        lk__fail(LK_ERR_ARGUMENT, "shard sum: %lld shards for %d devices; at least one a device is needed",
                 (long long)shards, ranks);
        return NULL;
    }
    lk_shard_sum *sum = lk__calloc(1, sizeof *sum);
    if (!sum)
        return NULL;
    sum->strategy = strategy;
    sum->shards = shards;
    sum->k = k;
    sum->n = n;
    sum->capacity = 2 * log2_ceil(shards) + 2;
    lk_status status = allocate(sum);
    for (int d = 0; d < k && status == LK_OK; d++)
        sum->owned[d] = lk_part(shards, ranks, lk_strategy_first_rank(strategy) + d);
    if (status == LK_OK)
        status = look_elsewhere(sum);
    if (status != LK_OK) {
        free_arrays(sum);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        sum->all[i] = i;
    empty(sum);
    return sum;
}

void lk_shard_sum_release(lk_shard_sum *sum)
{
    if (!sum)
        return;
    empty(sum);
    free_arrays(sum);
}

lk_strategy *lk__shard_sum_strategy(const lk_shard_sum *sum)
{
    return sum->strategy;
}

int64_t lk__shard_sum_shards(const lk_shard_sum *sum)
{
    return sum->shards;
}

lk_range lk__shard_sum_owned(const lk_shard_sum *sum, int replica)
{
    return sum->owned[replica];
}

void lk__shard_sum_start(lk_shard_sum *sum, int64_t samples)
{
    if (sum->elsewhere)
        lk__elsewhere_start(sum->elsewhere, samples);
}

/* From what a shard with samples gives. */
static void learn(lk_shard_sum *sum, int i, const lk_tensor *value)
{
    if (value) {
        sum->shapes[i] = value->shape;
        sum->dtypes[i] = value->dtype;
    }
    if (sum->elsewhere)
        lk__elsewhere_learn(sum->elsewhere, i, value != NULL);
}

/* --- one device's shards ------------------------------------------------------------------------------------------ */

static int owner(const lk_shard_sum *sum, int64_t shard)
{
    for (int d = 0; d < sum->k; d++)
        if (shard >= sum->owned[d].begin && shard < sum->owned[d].end)
            return d;
    return -1;
}

/* What one shard, or a node, gives at once. All of its quantities have the same nodes: these follow from the shards
 * given before.
 */
typedef struct gift {
    lk_shard_sum *sum;
    int d;
    const int *quantities;
    int n;
} gift;

static lk_status check_order(const gift *g, lk_range node)
{
    bool right = g->d >= 0;
    for (int j = 0; j < g->n && right; j++)
        right = stack_of(g->sum, g->d, g->quantities[j])->next == node.begin;
    if (!right)
        LK_FAIL(LK_ERR_ARGUMENT, "shard sum: shard %lld of %lld is given twice or out of order", (long long)node.begin,
                (long long)g->sum->shards);
    return LK_OK;
}

static void push_node(const gift *g, int i, lk_range node, lk_tensor *value)
{
    node_stack *stack = stack_of(g->sum, g->d, i);
    int64_t top = slot(g->sum, g->d, stack->depth++, i);
    stack->next = node.end;
    g->sum->ranges[top] = node;
    g->sum->values[top] = lk_tensor_retain(value);
}

/* The subtree that the shard given last completes: its nodes are the uppermost ones. */
static lk_bucket completed(const gift *g, int64_t shard)
{
    lk_shard_sum *sum = g->sum;
    lk_bucket bucket = {.root = lk__tree_completed(sum->shards, sum->owned[g->d], shard),
                        .nodes = sum->nodes,
                        .quantities = g->quantities,
                        .n_quantities = g->n,
                        .n = sum->n,
                        .sums = sum->subtree,
                        .jobs = &sum->jobs};
    int i = g->quantities[0];
    int64_t depth = stack_of(sum, g->d, i)->depth, first = depth;
    while (first > 0 && sum->ranges[slot(sum, g->d, first - 1, i)].begin >= bucket.root.begin)
        first--;
    for (int64_t p = first; p < depth; p++)
        sum->nodes[bucket.n_nodes++] =
            (lk_tree_node){.range = sum->ranges[slot(sum, g->d, p, i)], .values = sum->values + slot(sum, g->d, p, 0)};
    return bucket;
}

/* Its sum takes the place of the subtree's nodes. */
static lk_status add_up(const gift *g, const lk_bucket *bucket)
{
    lk_shard_sum *sum = g->sum;
    lk_device *device = lk_strategy_device(sum->strategy, g->d);
    LK_TRY(lk__bucket_sum_on(LK_HERE, device, &device, 1, bucket));
    for (int j = 0; j < g->n; j++) {
        int i = g->quantities[j];
        node_stack *stack = stack_of(sum, g->d, i);
        for (int64_t p = 0; p < bucket->n_nodes; p++)
            drop(&sum->values[slot(sum, g->d, --stack->depth, i)]);
        int64_t node = slot(sum, g->d, stack->depth++, i);
        sum->ranges[node] = bucket->root;
        sum->values[node] = sum->subtree[i];
        sum->subtree[i] = NULL;
    }
    return LK_OK;
}

static lk_status take(const gift *g, lk_range node, lk_tensor *const *values)
{
    lk_shard_sum *sum = g->sum;
    if (g->n == 0)
        return LK_OK;
    for (int j = 0; j < g->n; j++) {
        push_node(g, g->quantities[j], node, values ? values[g->quantities[j]] : NULL);
        if (values)
            learn(sum, g->quantities[j], values[g->quantities[j]]);
    }
    lk_bucket bucket = completed(g, node.end - 1);
    if (bucket.n_nodes > 1)
        LK_TRY(add_up(g, &bucket));
    for (int j = 0; j < g->n; j++) {
        int i = g->quantities[j];
        sum->missing[i] -= node.end - node.begin;
        if (sum->missing[i] == 0 && !sum->elsewhere)
            sum->ready[sum->n_ready++] = i;
    }
    return LK_OK;
}

static lk_status add(lk_shard_sum *sum, lk_range node, const int *quantities, int n, lk_tensor *const *values)
{
    gift g = {sum, owner(sum, node.begin), quantities, n};
    LK_TRY(check_order(&g, node));
    lk__phase before = lk__phase_set(LK_PHASE_SHARD_SUM);
    lk_scope_begin();
    lk_status status = take(&g, node, values);
    lk_scope_end();
    lk__phase_set(before);
    if (status != LK_OK) /* some quantities are added up, some are not: nothing of it is of use */
        empty(sum);
    return status;
}

lk_status lk_shard_sum_add(lk_shard_sum *sum, int64_t shard, lk_tensor *const *values)
{
    return add(sum, (lk_range){shard, shard + 1}, sum->all, sum->n, values);
}

lk_status lk_shard_sum_add_some(lk_shard_sum *sum, int64_t shard, const int *quantities, int n,
                                lk_tensor *const *values)
{
    return add(sum, (lk_range){shard, shard + 1}, quantities, n, values);
}

lk_status lk__shard_sum_add_node(lk_shard_sum *sum, lk_range node, const int *quantities, int n,
                                 lk_tensor *const *values)
{
    return add(sum, node, quantities, n, values);
}

/* --- all devices -------------------------------------------------------------------------------------------------- */

/* The nodes are the same for all quantities that are ready: each row of values has all of them. */
static int64_t collect_nodes(const lk_shard_sum *sum, int quantity)
{
    int64_t count = 0;
    for (int d = 0; d < sum->k; d++)
        for (int64_t p = 0; p < stack_of(sum, d, quantity)->depth; p++)
            sum->nodes[count++] = (lk_tree_node){.range = sum->ranges[slot(sum, d, p, quantity)],
                                                 .values = sum->values + slot(sum, d, p, 0),
                                                 .rank = lk_strategy_first_rank(sum->strategy) + d};
    if (!sum->elsewhere)
        return count;
    return lk__elsewhere_surround(sum->elsewhere, lk__elsewhere_is_present(sum->elsewhere, quantity), sum->nodes,
                                  count);
}

static void drop_nodes(lk_shard_sum *sum, int quantity)
{
    for (int d = 0; d < sum->k; d++) {
        node_stack *stack = stack_of(sum, d, quantity);
        while (stack->depth > 0)
            drop(&sum->values[slot(sum, d, --stack->depth, quantity)]);
    }
}

/* Quantities ready[n_begun … end). */
static lk_status begin(lk_place at, lk_shard_sum *sum, int end)
{
    if (sum->n_begun == end)
        return LK_OK;
    int first = sum->n_begun;
    lk_bucket bucket = {.root = {0, sum->shards},
                        .nodes = sum->nodes,
                        .n_nodes = collect_nodes(sum, sum->ready[first]),
                        .quantities = sum->ready + first,
                        .n_quantities = end - first,
                        .n = sum->n,
                        .shapes = sum->shapes,
                        .dtypes = sum->dtypes,
                        .sums = sum->sums,
                        .begun = sum->begun,
                        .jobs = &sum->jobs};
    lk_scope_begin();
    lk_status status = sum->strategy->table->begin(at, sum->strategy, &bucket);
    lk_scope_end();
    for (; sum->n_begun < end; sum->n_begun++)
        drop_nodes(sum, sum->ready[sum->n_begun]);
    return status;
}

/* What processes tell each other of a quantity. */
typedef struct quantity {
    bool is_known, is_present;
    lk_dtype dtype;
    lk_shape shape;
} quantity;

static quantity known_of(const lk_shard_sum *sum, int i)
{
    quantity q;
    memset(&q, 0, sizeof q); /* gaps are sent too */
    q.is_known = lk__elsewhere_knows(sum->elsewhere, i);
    q.is_present = lk__elsewhere_is_present(sum->elsewhere, i);
    q.dtype = sum->dtypes[i];
    q.shape = sum->shapes[i];
    return q;
}

static void learn_of_others(lk_shard_sum *sum, const quantity *told, int processes)
{
    for (int i = 0; i < sum->n; i++) {
        const quantity *q = told + i;
        for (int p = 1; p < processes && !q->is_known; p++)
            q = told + (ptrdiff_t)p * sum->n + i;
        if (!q->is_known)
            continue;
        sum->shapes[i] = q->shape;
        sum->dtypes[i] = q->dtype;
        lk__elsewhere_learn(sum->elsewhere, i, q->is_present);
    }
}

/* A process without samples knows of no quantity how large it is, and needs that for its part of the sums. */
static lk_status ask_others(lk_shard_sum *sum)
{
    lk_group *group = sum->strategy->group;
    size_t processes = (size_t)lk__group_ranks(group), n = (size_t)sum->n;
    quantity *own = lk__calloc(n, sizeof *own), *all = lk__calloc(processes * n, sizeof *all);
    lk_status status = own && all ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < sum->n && status == LK_OK; i++)
        own[i] = known_of(sum, i);
    if (status == LK_OK)
        status = lk__group_gather(group, own, n * sizeof *own, all);
    if (status == LK_OK)
        learn_of_others(sum, all, (int)processes);
    lk__free(own);
    lk__free(all);
    return status;
}

/* Begins those of the buckets that all processes form which are complete here, in their order. */
static lk_status begin_buckets(lk_place at, lk_shard_sum *sum)
{
    const int *quantities;
    for (int n; (n = lk__elsewhere_bucket(sum->elsewhere, sum->n_ready, &quantities)) > 0;) {
        for (int j = 0; j < n; j++)
            if (sum->missing[quantities[j]] > 0)
                return LK_OK;
        memcpy(sum->ready + sum->n_ready, quantities, (size_t)n * sizeof *quantities);
        sum->n_ready += n;
        LK_TRY(begin(at, sum, sum->n_ready));
    }
    return LK_OK;
}

static lk_status finish(lk_place at, lk_shard_sum *sum)
{
    const lk_strategy_table *table = sum->strategy->table;
    if (sum->elsewhere && lk__elsewhere_has_idle_ranks(sum->elsewhere))
        LK_TRY(ask_others(sum));
    if (sum->elsewhere)
        LK_TRY(begin_buckets(at, sum));
    lk_bucket bucket = {.root = {0, sum->shards},
                        .quantities = sum->ready,
                        .n_quantities = sum->n_ready,
                        .n = sum->n,
                        .sums = sum->sums,
                        .begun = sum->begun,
                        .jobs = &sum->jobs};
    LK_TRY(begin(at, sum, sum->n_ready));
    lk_scope_begin();
    lk_status status = table->finish ? table->finish(at, sum->strategy, &bucket) : LK_OK;
    lk_scope_end();
    return status;
}

static lk__phase set_phase(const lk_shard_sum *sum)
{
    return lk__phase_set(sum->k > 1 || sum->elsewhere ? LK_PHASE_EXCHANGE : LK_PHASE_SHARD_SUM);
}

/* Where processes have yet to tell each other something, whoever waited for an exchange before would wait for ever. */
static lk_status exchange(lk_place at, lk_shard_sum *sum)
{
    if (sum->elsewhere)
        return lk__elsewhere_has_idle_ranks(sum->elsewhere) ? LK_OK : begin_buckets(at, sum);
    return begin(at, sum, sum->strategy->flat ? sum->n_ready : sum->n_before);
}

/* On a queue of its own it can begin at once: no device waits for another one there. */
lk_status lk_shard_sum_exchange_at(lk_place at, lk_shard_sum *sum)
{
    lk__phase before = set_phase(sum);
    lk_status status = exchange(at, sum);
    lk__phase_set(before);
    sum->n_before = sum->n_ready;
    if (status != LK_OK)
        empty(sum);
    return status;
}

static lk_status check_complete(const lk_shard_sum *sum)
{
    for (int d = 0; d < sum->k && sum->n_ready < sum->n; d++)
        for (int i = 0; i < sum->n; i++)
            if (stack_of(sum, d, i)->next != sum->owned[d].end)
                LK_FAIL(LK_ERR_STATE, "shard sum: shard %lld of %lld is missing", (long long)stack_of(sum, d, i)->next,
                        (long long)sum->shards);
    return LK_OK;
}

lk_status lk_shard_sum_finish_at(lk_place at, lk_shard_sum *sum, lk_tensor **sums)
{
    size_t bytes = (size_t)sum->k * (size_t)sum->n * sizeof *sums;
    memset(sums, 0, bytes);
    lk_status status = check_complete(sum);
    lk__phase before = set_phase(sum);
    if (status == LK_OK)
        status = finish(at, sum);
    lk__phase_set(before);
    if (status == LK_OK && bytes > 0) {
        memcpy(sums, sum->sums, bytes);
        memset(sum->sums, 0, bytes);
    }
    empty(sum);
    return status;
}
