/* A sum over shards keeps, for every device, the tree nodes it has so far as a stack: a new shard is pushed as a leaf,
 * and while the two uppermost nodes are siblings they are added up. */
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"

#include <string.h>

typedef struct partial_sum {
    lk_range range;
    lk_tensor **values; /* n of them, one reference each where present */
} partial_sum;

typedef struct device_stack {
    lk_range shards; /* owned by the device */
    int64_t next;    /* the shard expected next */
    int64_t depth;
} device_stack;

struct lk_shard_sum {
    lk_strategy *strategy;
    int64_t shards;
    int n;
    device_stack *stacks;
    partial_sum *partials; /* `capacity` for each device */
    lk_tensor **values;    /* their values */
    int64_t capacity;      /* a range is covered by at most two nodes a level; two more while siblings are added */
    lk_tree_node *nodes;   /* scratch of finish */
};

static int64_t log2_ceil(int64_t n)
{
    int64_t bits = 0;
    while (((int64_t)1 << bits) < n)
        bits++;
    return bits;
}

lk_shard_sum *lk_shard_sum_new(lk_strategy *strategy, int64_t shards, int n)
{
    int64_t k = lk_strategy_num_replicas(strategy);
    if (shards < k || n < 0) {
        lk__fail(LK_ERR_ARGUMENT, "shard sum: %lld shards for %lld devices; at least one a device is needed",
                 (long long)shards, (long long)k);
        return NULL;
    }
    lk_shard_sum *sum = lk__calloc(1, sizeof *sum);
    if (!sum)
        return NULL;
    int64_t capacity = 2 * log2_ceil(shards) + 2;
    sum->strategy = strategy;
    sum->shards = shards;
    sum->n = n;
    sum->capacity = capacity;
    sum->stacks = lk__calloc((size_t)k, sizeof *sum->stacks);
    sum->partials = lk__calloc((size_t)(k * capacity), sizeof *sum->partials);
    sum->values = lk__calloc((size_t)(k * capacity), (size_t)n * sizeof *sum->values);
    sum->nodes = lk__calloc((size_t)(k * capacity), sizeof *sum->nodes);
    if (!sum->stacks || !sum->partials || !sum->values || !sum->nodes) {
        lk_shard_sum_release(sum);
        return NULL;
    }
    for (int64_t d = 0; d < k; d++) {
        sum->stacks[d].shards = lk_part(shards, k, d);
        sum->stacks[d].next = sum->stacks[d].shards.begin;
    }
    for (int64_t p = 0; p < k * capacity; p++)
        sum->partials[p].values = sum->values + p * n;
    return sum;
}

static void drop_values(const lk_shard_sum *sum, partial_sum *partial)
{
    for (int i = 0; i < sum->n; i++) {
        lk_tensor_release(partial->values[i]);
        partial->values[i] = NULL;
    }
}

static partial_sum *partial_at(const lk_shard_sum *sum, int64_t d, int64_t position)
{
    return &sum->partials[d * sum->capacity + position];
}

static void empty(lk_shard_sum *sum)
{
    for (int d = 0; d < lk_strategy_num_replicas(sum->strategy); d++) {
        device_stack *stack = &sum->stacks[d];
        while (stack->depth > 0)
            drop_values(sum, partial_at(sum, d, --stack->depth));
        stack->next = stack->shards.begin;
    }
}

void lk_shard_sum_release(lk_shard_sum *sum)
{
    if (!sum)
        return;
    if (sum->stacks && sum->partials && sum->values)
        empty(sum);
    lk__free(sum->stacks);
    lk__free(sum->partials);
    lk__free(sum->values);
    lk__free(sum->nodes);
    lk__free(sum);
}

/* left = left + right, quantity by quantity; what is absent from one is what the other has. */
static lk_status add_siblings(const lk_shard_sum *sum, partial_sum *left, partial_sum *right)
{
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int i = 0; i < sum->n && status == LK_OK; i++) {
        lk_tensor *a = left->values[i], *b = right->values[i];
        lk_tensor *total = a && b ? lk_add(a, b) : a ? a : b;
        if (a && !total) {
            status = lk_error_status();
            break;
        }
        if (total == a)
            continue;
        lk_tensor_retain(total);
        lk_tensor_release(a);
        left->values[i] = total;
    }
    lk_scope_end();
    LK_TRY(status);
    drop_values(sum, right);
    left->range.end = right->range.end;
    return LK_OK;
}

lk_strategy *lk__shard_sum_strategy(const lk_shard_sum *sum)
{
    return sum->strategy;
}

int64_t lk__shard_sum_shards(const lk_shard_sum *sum)
{
    return sum->shards;
}

static int owner(const lk_shard_sum *sum, int64_t shard)
{
    for (int d = 0; d < lk_strategy_num_replicas(sum->strategy); d++)
        if (shard >= sum->stacks[d].shards.begin && shard < sum->stacks[d].shards.end)
            return d;
    return -1;
}

lk_status lk_shard_sum_add(lk_shard_sum *sum, int64_t shard, lk_tensor *const *values)
{
    int d = owner(sum, shard);
    if (d < 0 || sum->stacks[d].next != shard)
        LK_FAIL(LK_ERR_ARGUMENT, "shard sum: shard %lld of %lld is given twice or out of order", (long long)shard,
                (long long)sum->shards);
    device_stack *stack = &sum->stacks[d];
    partial_sum *leaf = partial_at(sum, d, stack->depth);
    leaf->range = (lk_range){shard, shard + 1};
    for (int i = 0; i < sum->n; i++)
        leaf->values[i] = values ? lk_tensor_retain(values[i]) : NULL;
    stack->depth++;
    stack->next++;
    while (stack->depth >= 2) {
        partial_sum *left = partial_at(sum, d, stack->depth - 2), *right = left + 1;
        if (!lk__tree_siblings(sum->shards, left->range, right->range))
            break;
        lk__phase before = lk__phase_set(LK_PHASE_SHARD_SUM);
        lk_status status = add_siblings(sum, left, right);
        lk__phase_set(before);
        if (status != LK_OK) { /* some quantities are added up, some are not: nothing of it is of use */
            empty(sum);
            return status;
        }
        stack->depth--;
    }
    return LK_OK;
}

static lk_status collect_nodes(lk_shard_sum *sum, int64_t *count)
{
    *count = 0;
    for (int d = 0; d < lk_strategy_num_replicas(sum->strategy); d++) {
        const device_stack *stack = &sum->stacks[d];
        if (stack->next != stack->shards.end)
            LK_FAIL(LK_ERR_STATE, "shard sum: shard %lld of %lld is missing", (long long)stack->next,
                    (long long)sum->shards);
        for (int64_t p = 0; p < stack->depth; p++) {
            partial_sum *partial = partial_at(sum, d, p);
            sum->nodes[(*count)++] = (lk_tree_node){partial->range, partial->values};
        }
    }
    return LK_OK;
}

lk_status lk_shard_sum_finish_at(lk_place at, lk_shard_sum *sum, lk_tensor **sums)
{
    int k = lk_strategy_num_replicas(sum->strategy);
    int64_t count, total = (int64_t)k * sum->n;
    memset(sums, 0, (size_t)total * sizeof *sums);
    lk_status status = collect_nodes(sum, &count);
    lk__phase before = lk__phase_set(k > 1 ? LK_PHASE_EXCHANGE : LK_PHASE_SHARD_SUM);
    if (status == LK_OK) {
        lk_scope_begin();
        status = sum->strategy->table->reduce(at, sum->strategy, sum->shards, sum->nodes, count, sum->n, sums);
        lk_scope_end();
    }
    lk__phase_set(before);
    for (int64_t i = 0; i < total && status != LK_OK; i++) {
        lk_tensor_release(sums[i]);
        sums[i] = NULL;
    }
    empty(sum);
    return status;
}
