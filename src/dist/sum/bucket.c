#include "dist/sum/bucket.h"

#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"

#include <string.h>

/* Makes new tensors for the sum of quantity i, unless it has a place. A value that is the only one, and already where
 * its sum belongs, is the sum itself. */
static lk_status bucket_make_sums(const lk_bucket *bucket, int i, lk_device *const *devices, int n_devices)
{
    lk_tensor *value = NULL;
    int present = 0;
    for (int64_t m = 0; m < bucket->n_nodes; m++) {
        lk_tensor *of_node = bucket->nodes[m].values ? bucket->nodes[m].values[i] : NULL;
        value = of_node ? of_node : value;
        present += of_node != NULL;
    }
    if (present == 0)
        return LK_OK;
    if (present == 1 && n_devices == 1) {
        bucket->sums[i] = lk_tensor_retain(value);
        return LK_OK;
    }
    if (bucket->places && bucket->places[i]) {
        bucket->sums[i] = lk_tensor_retain(bucket->places[i]);
        return LK_OK;
    }
    for (int d = 0; d < n_devices; d++)
        LK_TRY(lk__tensor_new(devices[d], value->dtype, value->shape, &bucket->sums[(int64_t)d * bucket->n + i]));
    return LK_OK;
}

static lk_status bucket_begin_shared(const lk_bucket *bucket, lk_device *const *devices, int n_devices,
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
            LK_TRY(bucket_make_sums(bucket, bucket->quantities[q], homes, n_homes));
    return lk__shared_sum_begin(&sum, bucket->jobs);
}

lk_status lk__bucket_begin_shared(const lk_bucket *bucket, lk_device *const *devices, int n_devices)
{
    return bucket_begin_shared(bucket, devices, n_devices, devices, n_devices);
}

lk_status lk__bucket_sum_on(lk_call_site at, lk_device *home, lk_device *const *devices, int n_devices,
                            const lk_bucket *bucket)
{
    LK_TRY(bucket_begin_shared(bucket, devices, n_devices, &home, 1));
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

/* Describes the addends of a quantity. Quantities of a bucket with equal descriptions are exchanged together: the same
 * nodes have them, they share a dtype, and all of them are rounded or none. */
typedef struct addend_set {
    bool *nodes; /* [n_nodes]: which nodes have the quantity */
    bool is_any; /* some have, and devices with links can add them up */
    bool is_rounded;
    lk_dtype dtype;
} addend_set;

/* Two nodes of a tree are disjoint, or one contains the other. */
bool lk__bucket_is_remote_addend(const lk_bucket *bucket, const lk_tree_node *node, int i)
{
    const lk_range *root = bucket->roots ? &bucket->roots[i] : &bucket->root;
    return node->remote && !node->empty && node->range.begin < root->end && root->begin < node->range.end;
}

static addend_set bucket_addends_of(const lk_bucket *bucket, const lk_strategy *strategy, int i, bool *nodes)
{
    bool is_small = lk_shape_count(bucket->shapes[i]) <= LK_SMALL_QUANTITY;
    addend_set set = {.nodes = nodes, .is_rounded = strategy->compressed && !is_small, .dtype = bucket->dtypes[i]};
    for (int64_t m = 0; m < bucket->n_nodes; m++) {
        const lk_tree_node *node = &bucket->nodes[m];
        const lk_tensor *value = node->values ? node->values[i] : NULL;
        if (value && !lk__links_allreduce_takes(strategy->allreduce, value))
            return (addend_set){0};
        if (value || lk__bucket_is_remote_addend(bucket, node, i))
            set.is_any = nodes[m] = true;
    }
    return set;
}

static bool bucket_same_addends(const lk_bucket *bucket, addend_set a, addend_set b)
{
    return a.is_any && b.is_any && memcmp(a.nodes, b.nodes, (size_t)bucket->n_nodes * sizeof *a.nodes) == 0 &&
           a.is_rounded == b.is_rounded && a.dtype == b.dtype;
}

static int bucket_list_parts(const lk_bucket *bucket, addend_set set, lk_links_allreduce_part *parts)
{
    int n = 0;
    for (int64_t m = 0; m < bucket->n_nodes; m++) {
        const lk_tree_node *node = &bucket->nodes[m];
        if (set.nodes[m])
            parts[n++] = (lk_links_allreduce_part){node->range, node->rank, node->remote ? NULL : node->values};
    }
    return n;
}

/* Begins the exchange of all quantities with the addends sets[first], and clears `is_any` of their sets. parts: scratch
 * for all nodes. */
static lk_status bucket_begin_set(const lk_bucket *bucket, const lk_strategy *strategy, addend_set *sets, int first,
                                  int *members, lk_links_allreduce_part *parts)
{
    addend_set set = sets[first];
    lk_links_allreduce_sum sum = {.root = bucket->root,
                                  .parts = parts,
                                  .quantities = members,
                                  .shapes = bucket->shapes,
                                  .dtype = set.dtype,
                                  .compressed = set.is_rounded,
                                  /* NCCL's own reduction treats every word as f32. */
                                  .by_library = strategy->reduce == LK_REDUCE_NCCL && set.dtype == LK_F32,
                                  .sums = bucket->sums,
                                  .stride = bucket->n};
    sum.n_parts = bucket_list_parts(bucket, set, parts);
    for (int q = first; q < bucket->n_quantities; q++) {
        if (!bucket_same_addends(bucket, sets[q], set))
            continue;
        members[sum.n_quantities++] = bucket->quantities[q];
        sets[q].is_any = false;
    }
    return lk__links_allreduce_takes_tree(strategy->allreduce, &sum)
               ? lk__links_allreduce_begin(strategy->allreduce, &sum)
               : LK_OK;
}

lk_status lk__bucket_begin_linked(const lk_bucket *bucket, const lk_strategy *strategy)
{
    lk_device *home = strategy->devices[0];
    size_t n = (size_t)bucket->n_quantities, nodes = (size_t)bucket->n_nodes;
    addend_set *sets = lk__device_calloc(home, n, sizeof *sets);
    int *members = lk__device_calloc(home, n, sizeof *members);
    lk_links_allreduce_part *parts = lk__device_calloc(home, nodes, sizeof *parts);
    bool *present = lk__device_calloc(home, n * nodes, sizeof *present);
    lk_status status = sets && members && parts && present ? LK_OK : LK_ERR_MEMORY;
    for (int q = 0; q < bucket->n_quantities && status == LK_OK; q++)
        if (!bucket->sums[bucket->quantities[q]])
            sets[q] = bucket_addends_of(bucket, strategy, bucket->quantities[q], present + (size_t)q * nodes);
    for (int q = 0; q < bucket->n_quantities && status == LK_OK; q++)
        if (sets[q].is_any)
            status = bucket_begin_set(bucket, strategy, sets, q, members, parts);
    lk__device_free(home, sets);
    lk__device_free(home, members);
    lk__device_free(home, parts);
    lk__device_free(home, present);
    return status;
}
