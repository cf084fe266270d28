/* Buckets of quantities whose devices share their memory, or have links. */
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "dist/strategy.h"

static int list_present(const lk_bucket *bucket, int i, lk_tensor **one)
{
    int n = 0;
    for (int64_t node = 0; node < bucket->n_nodes; node++) {
        lk_tensor *value = bucket->nodes[node].values ? bucket->nodes[node].values[i] : NULL;
        if (!value)
            continue;
        *one = value;
        n++;
    }
    return n;
}

/* New tensors for the sum of quantity i. What is there alone, and where it should be, is the sum itself. */
static lk_status make_sums(const lk_bucket *bucket, int i, lk_device *const *devices, int n_devices)
{
    lk_tensor *value = NULL;
    int present = list_present(bucket, i, &value);
    if (present == 0)
        return LK_OK;
    if (present == 1 && n_devices == 1) {
        bucket->sums[i] = lk_tensor_retain(value);
        return LK_OK;
    }
    for (int d = 0; d < n_devices; d++)
        LK_TRY(lk__tensor_new(devices[d], value->dtype, value->shape, &bucket->sums[(int64_t)d * bucket->n + i]));
    return LK_OK;
}

static lk_status begin_shared(const lk_bucket *bucket, lk_device *const *devices, int n_devices,
                              lk_device *const *homes, int n_homes)
{
    lk_shared_sum sum = {.devices = devices,
                         .n_devices = n_devices,
                         .root = bucket->root,
                         .nodes = bucket->nodes,
                         .n_nodes = bucket->n_nodes,
                         .quantities = bucket->quantities,
                         .n_quantities = bucket->n_quantities,
                         .results = bucket->sums,
                         .n_results = n_homes,
                         .stride = bucket->n};
    for (int q = 0; q < bucket->n_quantities; q++)
        if (lk__shared_sum_takes(bucket->nodes, bucket->n_nodes, bucket->quantities[q]))
            LK_TRY(make_sums(bucket, bucket->quantities[q], homes, n_homes));
    return lk__shared_sum_begin(&sum, bucket->jobs);
}

lk_status lk__bucket_begin_shared(const lk_bucket *bucket, lk_device *const *devices, int n_devices)
{
    return begin_shared(bucket, devices, n_devices, devices, n_devices);
}

lk_status lk__bucket_sum_on(lk_place at, lk_device *home, lk_device *const *devices, int n_devices,
                            const lk_bucket *bucket)
{
    LK_TRY(begin_shared(bucket, devices, n_devices, &home, 1));
    for (int q = 0; q < bucket->n_quantities; q++) {
        int i = bucket->quantities[q];
        lk_tensor *sum;
        if (bucket->sums[i])
            continue;
        LK_TRY(lk__tree_sum(at, home, &lk__transport_inproc, bucket->root, bucket->nodes, bucket->n_nodes, i,
                            (lk_range){0, -1}, &sum));
        bucket->sums[i] = lk_tensor_retain(sum);
    }
    return LK_OK;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

/* Quantities of one bucket that the same nodes have, and which are all small or all large. */
typedef struct group {
    uint64_t nodes; /* bit m: node m has them; 0: no device with links can add them up */
    bool small;
    lk_dtype dtype;
} group;

static group group_of(const lk_bucket *bucket, const lk_flat *flat, int i)
{
    group g = {.small = lk_shape_count(bucket->shapes[i]) <= LK_FLAT_SMALL, .dtype = bucket->dtypes[i]};
    for (int64_t m = 0; m < bucket->n_nodes; m++) {
        const lk_tree_node *node = &bucket->nodes[m];
        const lk_tensor *value = node->values ? node->values[i] : NULL;
        if (value && !lk__flat_takes(flat, value))
            return (group){0};
        if (value || (node->elsewhere && !node->empty))
            g.nodes |= (uint64_t)1 << m;
    }
    return g;
}

static bool are_together(group a, group b)
{
    return a.nodes == b.nodes && a.small == b.small && a.dtype == b.dtype;
}

static bool fits(const lk_bucket *bucket)
{
    lk_range ranges[LK_FLAT_PARTS];
    for (int64_t m = 0; m < bucket->n_nodes && m < LK_FLAT_PARTS; m++)
        ranges[m] = bucket->nodes[m].range;
    return bucket->n_nodes <= LK_FLAT_PARTS && lk__flat_takes_tree(bucket->root, ranges, (int)bucket->n_nodes);
}

static int list_parts(const lk_bucket *bucket, group g, lk_flat_part *parts)
{
    int n = 0;
    for (int64_t m = 0; m < bucket->n_nodes; m++) {
        const lk_tree_node *node = &bucket->nodes[m];
        if (g.nodes >> m & 1)
            parts[n++] = (lk_flat_part){node->range, node->rank, node->elsewhere ? NULL : node->values};
    }
    return n;
}

/* groups[q] of those that are begun is emptied. */
static lk_status begin_group(const lk_bucket *bucket, const lk_strategy *strategy, group *groups, int first,
                             int *members)
{
    lk_flat_part parts[LK_FLAT_PARTS];
    group g = groups[first];
    lk_flat_sum sum = {.root = bucket->root,
                       .parts = parts,
                       .quantities = members,
                       .shapes = bucket->shapes,
                       .dtype = g.dtype,
                       .compressed = strategy->compressed,
                       .by_library = strategy->reduce == LK_REDUCE_NCCL,
                       .whole = g.small,
                       .sums = bucket->sums,
                       .stride = bucket->n};
    sum.n_parts = list_parts(bucket, g, parts);
    for (int q = first; q < bucket->n_quantities; q++) {
        if (!are_together(groups[q], g))
            continue;
        members[sum.n_quantities++] = bucket->quantities[q];
        groups[q].nodes = 0;
    }
    return lk__flat_allreduce(strategy->flat, &sum);
}

lk_status lk__bucket_begin_flat(const lk_bucket *bucket, const lk_strategy *strategy)
{
    lk_device *home = strategy->devices[0];
    size_t n = (size_t)bucket->n_quantities;
    if (!fits(bucket))
        return LK_OK;
    group *groups = lk__device_calloc(home, n, sizeof *groups);
    int *members = lk__device_calloc(home, n, sizeof *members);
    lk_status status = groups && members ? LK_OK : LK_ERR_MEMORY;
    for (int q = 0; q < bucket->n_quantities && status == LK_OK; q++)
        if (!bucket->sums[bucket->quantities[q]])
            groups[q] = group_of(bucket, strategy->flat, bucket->quantities[q]);
    for (int q = 0; q < bucket->n_quantities && status == LK_OK; q++)
        if (groups[q].nodes)
            status = begin_group(bucket, strategy, groups, q, members);
    lk__device_free(home, groups);
    lk__device_free(home, members);
    return status;
}
