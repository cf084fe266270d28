/* For every quantity and device a sum over shards keeps its current tree nodes as a stack. A new shard is pushed as a
 * leaf; then the nodes of the largest subtree that it completes are added up in one pass over memory. Products that are
 * left as their factors (core/products.h) wait longer, so that several are computed and added up at once: until a
 * completed subtree has enough of them, or is one of the largest that the device's shards form. A quantity that every
 * shard has given can be exchanged without waiting for the others. */
#include "dist/sum/shard_sum.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "dist/sum/bucket.h"
#include "dist/sum/remote_nodes.h"
#include "lockstep/ops.h"

#include <string.h>

/* A completed subtree with at least this many waiting nodes is added up. Siblings differ by one shard at most, so fewer
 * than twice as many nodes wait. */
enum { PRODUCTS_AT_ONCE = 8 };

/* The nodes of one quantity on one device. */
typedef struct node_stack {
    int64_t next; /* the shard expected next */
    int64_t depth;
} node_stack;

struct lk_shard_sum {
    lk_strategy *strategy;
    int64_t shards;
    int k, n;                 /* devices, quantities */
    const lk_range *roots;    /* [n]: nodes with the shards that have the quantities; NULL: all have all of them */
    lk_tensor *const *places; /* as in lk_bucket */
    lk_range *owned;          /* [k]: a device's shards */
    int64_t capacity;   /* of a stack: a range needs at most two nodes per level, a leaf is pushed before anything is
                           added, and products wait */
    node_stack *stacks; /* [k][n] */
    lk_range *ranges;   /* [k][capacity][n]: of the nodes in the stacks */
    lk_tensor **values; /* [k][capacity][n]: their values, one reference each; NULL: absent */

    int64_t *missing; /* [n]: number of shards that have not given the quantity */
    int *ready;       /* [n_ready]: quantities that every shard has given, in the order in which they were completed */
    int n_ready;
    int n_begun;               /* the exchange of ready[0 … n_begun) has begun */
    int n_ready_before;        /* n_ready when lk_shard_sum_exchange was last called */
    lk_tensor **sums, **begun; /* [k][n]: as in lk_bucket */
    lk_shared_sum_job *jobs;
    lk_tree_node *nodes; /* scratch: the nodes that cover all shards, or a subtree */
    lk_tensor **subtree; /* [n], scratch: sums of a completed subtree */
    int *all;            /* [n]: 0, 1, … */
    int *plain;          /* [n], scratch: quantities without products */
    lk_shape *shapes;    /* [n], like dtypes: of the quantities, for sums over links */
    lk_dtype *dtypes;

    /* With several processes quantities are exchanged in an order common to all, bucket by bucket as buckets are
     * complete locally. NULL: one process has all shards. */
    lk_remote_nodes *remote_nodes;
};

static int64_t shard_sum_log2_ceil(int64_t n)
{
    int64_t bits = 0;
    while (((int64_t)1 << bits) < n)
        bits++;
    return bits;
}

static lk_status shard_sum_allocate(lk_shard_sum *sum)
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
    sum->plain = lk__calloc(n, sizeof *sum->plain);
    sum->shapes = lk__calloc(n, sizeof *sum->shapes);
    sum->dtypes = lk__calloc(n, sizeof *sum->dtypes);
    bool complete = sum->owned && sum->stacks && sum->ranges && sum->values && sum->missing && sum->ready &&
                    sum->sums && sum->begun && sum->nodes && sum->subtree && sum->all && sum->plain && sum->shapes &&
                    sum->dtypes;
    return complete ? LK_OK : LK_ERR_MEMORY;
}

/* Index of position p in the stack of quantity i on device d. */
static int64_t shard_sum_stack_slot(const lk_shard_sum *sum, int d, int64_t p, int i)
{
    return (d * sum->capacity + p) * sum->n + i;
}

static node_stack *shard_sum_stack_of(const lk_shard_sum *sum, int d, int i)
{
    return &sum->stacks[(int64_t)d * sum->n + i];
}

static void shard_sum_drop_tensor(lk_tensor **tensor)
{
    lk_tensor_release(*tensor);
    *tensor = NULL;
}

static void shard_sum_drop_nodes(lk_shard_sum *sum, int quantity)
{
    for (int d = 0; d < sum->k; d++) {
        node_stack *stack = shard_sum_stack_of(sum, d, quantity);
        while (stack->depth > 0)
            shard_sum_drop_tensor(&sum->values[shard_sum_stack_slot(sum, d, --stack->depth, quantity)]);
    }
}

/* Drops all values, and makes the sum ready for the next step. */
static void shard_sum_empty(lk_shard_sum *sum)
{
    for (int i = 0; i < sum->n; i++) {
        shard_sum_drop_nodes(sum, i);
        for (int d = 0; d < sum->k; d++) {
            shard_sum_stack_of(sum, d, i)->next = sum->owned[d].begin;
            shard_sum_drop_tensor(&sum->sums[(int64_t)d * sum->n + i]);
            shard_sum_drop_tensor(&sum->begun[(int64_t)d * sum->n + i]);
        }
        shard_sum_drop_tensor(&sum->subtree[i]);
        sum->missing[i] = sum->owned[sum->k - 1].end - sum->owned[0].begin; /* all shards of this process */
    }
    lk__shared_sum_release(&sum->jobs);
    sum->n_ready = sum->n_ready_before = sum->n_begun = 0;
}

static void shard_sum_free(lk_shard_sum *sum)
{
    LK_FREE_ALL(sum->owned, sum->stacks, sum->ranges, sum->values, sum->missing, sum->ready, sum->sums, sum->begun,
                sum->nodes, sum->subtree, sum->all, sum->plain, sum->shapes, sum->dtypes);
    lk__remote_nodes_release(sum->remote_nodes);
    lk__free(sum);
}

/* With several processes: sets up the list of remote nodes. */
static lk_status shard_sum_open_remote(lk_shard_sum *sum)
{
    const lk_strategy *s = sum->strategy;
    if (!s->group)
        return LK_OK;
    lk_remote_nodes_opts opts = {.shards = sum->shards,
                                 .first = s->first,
                                 .k = s->n_devices,
                                 .ranks = s->ranks,
                                 .n = sum->n,
                                 .shapes = sum->shapes,
                                 .dtypes = sum->dtypes};
    LK_TRY(lk__remote_nodes_new(&opts, &sum->remote_nodes));
    lk__free(sum->nodes);
    sum->nodes = lk__calloc((size_t)lk__remote_nodes_count(sum->remote_nodes) + (size_t)(sum->k * sum->capacity),
                            sizeof *sum->nodes);
    return sum->nodes ? LK_OK : LK_ERR_MEMORY;
}

lk_shard_sum *lk_shard_sum_new(lk_strategy *strategy, int64_t shards, int n)
{
    return lk__shard_sum_new_below(strategy, shards, n, NULL);
}

lk_shard_sum *lk__shard_sum_new_below(lk_strategy *strategy, int64_t shards, int n, const lk_range *roots)
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
    *sum = (lk_shard_sum){.strategy = strategy, .shards = shards, .k = k, .n = n, .roots = roots};
    sum->capacity = 2 * shard_sum_log2_ceil(shards) + 2 + 2 * PRODUCTS_AT_ONCE;
    lk_status status = shard_sum_allocate(sum);
    for (int d = 0; d < k && status == LK_OK; d++)
        sum->owned[d] = lk_part(shards, ranks, lk_strategy_first_rank(strategy) + d);
    if (status == LK_OK)
        status = shard_sum_open_remote(sum);
    if (status != LK_OK) {
        shard_sum_free(sum);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        sum->all[i] = i;
    shard_sum_empty(sum);
    return sum;
}

void lk_shard_sum_release(lk_shard_sum *sum)
{
    if (!sum)
        return;
    shard_sum_empty(sum);
    shard_sum_free(sum);
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

void lk__shard_sum_set_buckets(lk_shard_sum *sum, int n_first, const int *buckets)
{
    if (sum->remote_nodes)
        lk__remote_nodes_set_buckets(sum->remote_nodes, n_first, buckets);
}

void lk__shard_sum_set_places(lk_shard_sum *sum, lk_tensor *const *places)
{
    sum->places = places;
}

void lk_shard_sum_start(lk_shard_sum *sum, int64_t samples)
{
    if (sum->remote_nodes)
        lk__remote_nodes_start(sum->remote_nodes, samples);
}

/* --- one device's shards ------------------------------------------------------------------------------------------ */

static int shard_sum_owner(const lk_shard_sum *sum, int64_t shard)
{
    for (int d = 0; d < sum->k; d++)
        if (shard >= sum->owned[d].begin && shard < sum->owned[d].end)
            return d;
    return -1;
}

/* The arguments of one call: quantities of a shard or node. All of them have the same stack of nodes, which depends
 * only on the shards given before. */
typedef struct contribution {
    lk_shard_sum *sum;
    int d;
    const int *quantities;
    int n;
} contribution;

static lk_status shard_sum_check_order(const contribution *c, lk_range node)
{
    bool right = c->d >= 0;
    for (int j = 0; j < c->n && right; j++)
        right = shard_sum_stack_of(c->sum, c->d, c->quantities[j])->next == node.begin;
    if (!right)
        LK_FAIL(LK_ERR_ARGUMENT, "shard sum: shard %lld of %lld is given twice or out of order", (long long)node.begin,
                (long long)c->sum->shards);
    return LK_OK;
}

/* Returns the subtree that `shard`, the last one given, completes: its nodes are the topmost ones of the stack. */
static lk_bucket shard_sum_completed_subtree(const contribution *c, int64_t shard)
{
    lk_shard_sum *sum = c->sum;
    lk_bucket bucket = {.root = lk__tree_completed(sum->shards, sum->owned[c->d], shard),
                        .nodes = sum->nodes,
                        .quantities = c->quantities,
                        .n_quantities = c->n,
                        .n = sum->n,
                        .sums = sum->subtree,
                        .jobs = &sum->jobs};
    int i = c->quantities[0];
    int64_t depth = shard_sum_stack_of(sum, c->d, i)->depth, first = depth;
    while (first > 0 && sum->ranges[shard_sum_stack_slot(sum, c->d, first - 1, i)].begin >= bucket.root.begin)
        first--;
    for (int64_t p = first; p < depth; p++)
        sum->nodes[bucket.n_nodes++] = (lk_tree_node){.range = sum->ranges[shard_sum_stack_slot(sum, c->d, p, i)],
                                                      .values = sum->values + shard_sum_stack_slot(sum, c->d, p, 0)};
    return bucket;
}

/* Replaces the subtree's nodes by their sum. */
static lk_status shard_sum_add_up(const contribution *c, const lk_bucket *bucket)
{
    lk_shard_sum *sum = c->sum;
    lk_device *device = lk_strategy_device(sum->strategy, c->d);
    lk_bucket placed = *bucket;
    if (bucket->root.begin == 0 && bucket->root.end == sum->shards)
        placed.places = sum->places;
    LK_TRY(lk__bucket_sum_on(LK_HERE, device, &device, 1, &placed));
    for (int j = 0; j < c->n; j++) {
        int i = c->quantities[j];
        node_stack *stack = shard_sum_stack_of(sum, c->d, i);
        for (int64_t p = 0; p < bucket->n_nodes; p++)
            shard_sum_drop_tensor(&sum->values[shard_sum_stack_slot(sum, c->d, --stack->depth, i)]);
        int64_t node = shard_sum_stack_slot(sum, c->d, stack->depth++, i);
        sum->ranges[node] = bucket->root;
        sum->values[node] = sum->subtree[i];
        sum->subtree[i] = NULL;
    }
    return LK_OK;
}

void lk__shard_sum_expect(lk_shard_sum *sum, int i, const lk_tensor *like)
{
    if (like) {
        sum->shapes[i] = like->shape;
        sum->dtypes[i] = like->dtype;
    }
    if (sum->remote_nodes)
        lk__remote_nodes_learn(sum->remote_nodes, i, like != NULL);
}

/* Returns whether products wait in the stack of quantity i. */
static bool shard_sum_has_products(const lk_shard_sum *sum, int d, int i)
{
    for (int64_t p = 0; p < shard_sum_stack_of(sum, d, i)->depth; p++) {
        const lk_tensor *value = sum->values[shard_sum_stack_slot(sum, d, p, i)];
        if (value && value->storage->is_product)
            return true;
    }
    return false;
}

/* Returns whether `node` is one of the largest nodes that the device's shards form. */
static bool shard_sum_is_largest(const contribution *c, lk_range node)
{
    lk_range nodes[LK_TREE_COVER];
    int n = lk__tree_cover(c->sum->shards, c->sum->owned[c->d], nodes);
    while (n > 0 && nodes[n - 1].begin != node.begin)
        n--;
    return n > 0 && nodes[n - 1].end == node.end;
}

/* The same as shard_sum_add_up for one quantity that has products. */
static lk_status shard_sum_add_products(const contribution *c, int64_t shard)
{
    lk_shard_sum *sum = c->sum;
    int i = c->quantities[0];
    lk_bucket bucket = shard_sum_completed_subtree(c, shard);
    bool largest = shard_sum_is_largest(c, bucket.root);
    if (bucket.n_nodes > 1 && (largest || bucket.n_nodes >= PRODUCTS_AT_ONCE))
        LK_TRY(shard_sum_add_up(c, &bucket));
    lk_tensor *top = sum->values[shard_sum_stack_slot(sum, c->d, shard_sum_stack_of(sum, c->d, i)->depth - 1, i)];
    return largest && top ? lk__tensor_make_plain(top) : LK_OK;
}

/* Adds up what the last shard given completes. */
static lk_status shard_sum_complete(const contribution *c, int64_t shard)
{
    contribution plain = {c->sum, c->d, c->sum->plain, 0};
    for (int j = 0; j < c->n; j++) {
        if (!shard_sum_has_products(c->sum, c->d, c->quantities[j]))
            c->sum->plain[plain.n++] = c->quantities[j];
        else
            LK_TRY(shard_sum_add_products(&(contribution){c->sum, c->d, &c->quantities[j], 1}, shard));
    }
    if (plain.n == 0)
        return LK_OK;
    lk_bucket bucket = shard_sum_completed_subtree(&plain, shard);
    return bucket.n_nodes > 1 ? shard_sum_add_up(&plain, &bucket) : LK_OK;
}

/* values NULL: the node has no samples. */
static lk_status shard_sum_take(const contribution *c, lk_range node, lk_tensor *const *values)
{
    lk_shard_sum *sum = c->sum;
    if (c->n == 0)
        return LK_OK;
    for (int j = 0; j < c->n; j++) {
        int i = c->quantities[j];
        lk_tensor *value = values ? values[i] : NULL;
        /* Messages carry values without gaps. */
        if (value && sum->remote_nodes && !lk__tensor_is_dense(value) &&
            !(value = lk_copy(value, lk_tensor_device(value))))
            return lk_error_status();
        node_stack *stack = shard_sum_stack_of(sum, c->d, i);
        int64_t top = shard_sum_stack_slot(sum, c->d, stack->depth++, i);
        stack->next = node.end;
        sum->ranges[top] = node;
        sum->values[top] = lk_tensor_retain(value);
        if (values && !sum->roots)
            lk__shard_sum_expect(sum, i, value);
    }
    LK_TRY(shard_sum_complete(c, node.end - 1));
    for (int j = 0; j < c->n; j++) {
        int i = c->quantities[j];
        sum->missing[i] -= node.end - node.begin;
        if (sum->missing[i] == 0 && !sum->remote_nodes)
            sum->ready[sum->n_ready++] = i;
    }
    return LK_OK;
}

static lk_status shard_sum_add(lk_shard_sum *sum, lk_range node, const int *quantities, int n, lk_tensor *const *values)
{
    contribution c = {sum, shard_sum_owner(sum, node.begin), quantities, n};
    LK_TRY(shard_sum_check_order(&c, node));
    lk_phase before = lk__phase_set(LK_PHASE_SHARD_SUM);
    lk_scope_begin();
    lk_status status = shard_sum_take(&c, node, values);
    lk_scope_end();
    lk__phase_set(before);
    if (status != LK_OK) /* only some of the quantities may have been added, so the sum is not usable */
        shard_sum_empty(sum);
    return status;
}

lk_status lk_shard_sum_add(lk_shard_sum *sum, int64_t shard, lk_tensor *const *values)
{
    return shard_sum_add(sum, (lk_range){shard, shard + 1}, sum->all, sum->n, values);
}

lk_status lk_shard_sum_add_some(lk_shard_sum *sum, int64_t shard, const int *quantities, int n,
                                lk_tensor *const *values)
{
    return shard_sum_add(sum, (lk_range){shard, shard + 1}, quantities, n, values);
}

lk_status lk__shard_sum_add_node(lk_shard_sum *sum, lk_range node, const int *quantities, int n,
                                 lk_tensor *const *values)
{
    return shard_sum_add(sum, node, quantities, n, values);
}

/* --- all devices -------------------------------------------------------------------------------------------------- */

/* Lists the nodes of the quantities that are exchanged together with this one; all of them have the same nodes. */
static int64_t shard_sum_list_nodes(const lk_shard_sum *sum, int quantity)
{
    int64_t count = 0;
    for (int d = 0; d < sum->k; d++)
        for (int64_t p = 0; p < shard_sum_stack_of(sum, d, quantity)->depth; p++)
            sum->nodes[count++] = (lk_tree_node){.range = sum->ranges[shard_sum_stack_slot(sum, d, p, quantity)],
                                                 .values = sum->values + shard_sum_stack_slot(sum, d, p, 0),
                                                 .rank = lk_strategy_first_rank(sum->strategy) + d};
    if (!sum->remote_nodes)
        return count;
    return lk__remote_nodes_surround(sum->remote_nodes, lk__remote_nodes_have(sum->remote_nodes, quantity), sum->nodes,
                                     count);
}

/* Begins the exchange of quantities ready[n_begun … end). */
static lk_status shard_sum_begin(lk_call_site at, lk_shard_sum *sum, int end)
{
    if (sum->n_begun == end)
        return LK_OK;
    int first = sum->n_begun;
    lk_bucket bucket = {.root = {0, sum->shards},
                        .nodes = sum->nodes,
                        .n_nodes = shard_sum_list_nodes(sum, sum->ready[first]),
                        .quantities = sum->ready + first,
                        .n_quantities = end - first,
                        .n = sum->n,
                        .roots = sum->roots,
                        .shapes = sum->shapes,
                        .dtypes = sum->dtypes,
                        .sums = sum->sums,
                        .begun = sum->begun,
                        .jobs = &sum->jobs};
    lk_scope_begin();
    lk_status status = sum->strategy->table->begin(at, sum->strategy, &bucket);
    lk_scope_end();
    for (; sum->n_begun < end; sum->n_begun++)
        shard_sum_drop_nodes(sum, sum->ready[sum->n_begun]);
    return status;
}

/* A quantity, as a process describes it to the others. */
typedef struct quantity {
    bool is_known, is_present;
    lk_dtype dtype;
    lk_shape shape;
} quantity;

static void shard_sum_learn_from(lk_shard_sum *sum, const quantity *told, int processes)
{
    for (int i = 0; i < sum->n; i++) {
        const quantity *q = told + i;
        for (int p = 1; p < processes && !q->is_known; p++)
            q = told + (ptrdiff_t)p * sum->n + i;
        if (!q->is_known)
            continue;
        sum->shapes[i] = q->shape;
        sum->dtypes[i] = q->dtype;
        lk__remote_nodes_learn(sum->remote_nodes, i, q->is_present);
    }
}

/* A process without samples knows no quantity's shape, which it needs for its part of the sums, so all tell theirs. */
static lk_status shard_sum_ask_others(lk_shard_sum *sum)
{
    lk_group *group = sum->strategy->group;
    size_t processes = (size_t)lk__group_ranks(group), n = (size_t)sum->n;
    quantity *own = lk__calloc(n, sizeof *own); /* zeros also in padding bytes, which are sent too */
    quantity *all = lk__calloc(processes * n, sizeof *all);
    lk_status status = own && all ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < sum->n && status == LK_OK; i++) {
        own[i].is_known = lk__remote_nodes_know(sum->remote_nodes, i);
        own[i].is_present = lk__remote_nodes_have(sum->remote_nodes, i);
        own[i].dtype = sum->dtypes[i];
        own[i].shape = sum->shapes[i];
    }
    if (status == LK_OK)
        status = lk__group_gather(group, own, n * sizeof *own, all);
    if (status == LK_OK)
        shard_sum_learn_from(sum, all, (int)processes);
    lk__free(own);
    lk__free(all);
    return status;
}

/* Begins the buckets that are complete locally, in the order that all processes share. */
static lk_status shard_sum_begin_buckets(lk_call_site at, lk_shard_sum *sum)
{
    const int *quantities;
    for (int n; (n = lk__remote_nodes_bucket(sum->remote_nodes, sum->n_ready, &quantities)) > 0;) {
        for (int j = 0; j < n; j++)
            if (sum->missing[quantities[j]] > 0)
                return LK_OK;
        memcpy(sum->ready + sum->n_ready, quantities, (size_t)n * sizeof *quantities);
        sum->n_ready += n;
        LK_TRY(shard_sum_begin(at, sum, sum->n_ready));
    }
    return LK_OK;
}

static lk_status shard_sum_finish(lk_call_site at, lk_shard_sum *sum)
{
    const lk_strategy_table *table = sum->strategy->table;
    if (sum->remote_nodes && lk__remote_nodes_have_idle_ranks(sum->remote_nodes))
        LK_TRY(shard_sum_ask_others(sum));
    if (sum->remote_nodes)
        LK_TRY(shard_sum_begin_buckets(at, sum));
    lk_bucket bucket = {.root = {0, sum->shards},
                        .quantities = sum->ready,
                        .n_quantities = sum->n_ready,
                        .n = sum->n,
                        .sums = sum->sums,
                        .begun = sum->begun,
                        .jobs = &sum->jobs};
    LK_TRY(shard_sum_begin(at, sum, sum->n_ready));
    lk_scope_begin();
    lk_status status = table->finish ? table->finish(at, sum->strategy, &bucket) : LK_OK;
    lk_scope_end();
    return status;
}

static lk_phase shard_sum_set_phase(const lk_shard_sum *sum)
{
    return lk__phase_set(sum->k > 1 || sum->remote_nodes ? LK_PHASE_EXCHANGE : LK_PHASE_SHARD_SUM);
}

lk_status lk_shard_sum_exchange_at(lk_call_site at, lk_shard_sum *sum)
{
    lk_phase before = shard_sum_set_phase(sum);
    lk_status status = LK_OK;
    if (!sum->remote_nodes)
        /* Over links an exchange can begin at once, for it has its own queue and no device waits in it. Otherwise only
         * quantities that were complete at the previous call are begun. */
        status = shard_sum_begin(at, sum, sum->strategy->allreduce ? sum->n_ready : sum->n_ready_before);
    else if (!lk__remote_nodes_have_idle_ranks(sum->remote_nodes))
        status = shard_sum_begin_buckets(at, sum);
    /* Otherwise all processes must first ask each other for shapes, in lk_shard_sum_finish. A process that waited for
     * an exchange before that would wait forever. */
    lk__phase_set(before);
    sum->n_ready_before = sum->n_ready;
    if (status != LK_OK)
        shard_sum_empty(sum);
    return status;
}

static lk_status shard_sum_check_complete(const lk_shard_sum *sum)
{
    for (int d = 0; d < sum->k && sum->n_ready < sum->n; d++)
        for (int i = 0; i < sum->n; i++)
            if (shard_sum_stack_of(sum, d, i)->next != sum->owned[d].end)
                LK_FAIL(LK_ERR_STATE, "shard sum: shard %lld of %lld is missing",
                        (long long)shard_sum_stack_of(sum, d, i)->next, (long long)sum->shards);
    return LK_OK;
}

lk_status lk_shard_sum_finish_at(lk_call_site at, lk_shard_sum *sum, lk_tensor **sums)
{
    size_t bytes = (size_t)sum->k * (size_t)sum->n * sizeof *sums;
    memset(sums, 0, bytes);
    lk_status status = shard_sum_check_complete(sum);
    lk_phase before = shard_sum_set_phase(sum);
    if (status == LK_OK)
        status = shard_sum_finish(at, sum);
    lk__phase_set(before);
    if (status == LK_OK && bytes > 0) {
        memcpy(sums, sum->sums, bytes);
        memset(sum->sums, 0, bytes);
    }
    shard_sum_empty(sum);
    return status;
}
