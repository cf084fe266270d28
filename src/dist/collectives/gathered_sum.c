#include "dist/collectives/gathered_sum.h"

#include "core/backend.h"
#include "core/tensor.h"
#include "dist/collectives/host_gather.h"
#include "dist/collectives/tree_allreduce.h"
#include "dist/sum/bucket.h"

/* The memory of one call: the nodes, and what is gathered of them. */
typedef struct gathered_sum {
    lk_tree_node *nodes;  /* [n_nodes] */
    lk_tensor **remote;   /* [node * n + i]: the copies of other processes' values */
    lk_gathered *tensors; /* room for all values of all nodes */
    int64_t n;
} gathered_sum;

/* Lists the values that there are, node by node. */
static void gathered_sum_list(const lk_bucket *bucket, gathered_sum *sum)
{
    for (int64_t m = 0; m < bucket->n_nodes; m++) {
        const lk_tree_node *node = &bucket->nodes[m];
        for (int q = 0; q < bucket->n_quantities; q++) {
            int i = bucket->quantities[q];
            lk_tensor *value = node->values ? node->values[i] : NULL;
            if (value || lk__bucket_is_remote_addend(bucket, node, i))
                sum->tensors[sum->n++] = (lk_gathered){value, node->rank, bucket->dtypes[i], bucket->shapes[i], NULL};
        }
    }
}

/* The copies come in the order in which they were listed. */
static void gathered_sum_take_copies(const lk_bucket *bucket, const gathered_sum *sum)
{
    const lk_gathered *next = sum->tensors;
    for (int64_t m = 0; m < bucket->n_nodes; m++) {
        const lk_tree_node *node = &bucket->nodes[m];
        sum->nodes[m] = *node;
        if (node->remote)
            sum->nodes[m].values = sum->remote + m * bucket->n;
        for (int q = 0; q < bucket->n_quantities; q++) {
            int i = bucket->quantities[q];
            if (lk__bucket_is_remote_addend(bucket, node, i))
                sum->remote[m * bucket->n + i] = (next++)->copy;
            else
                next += node->values && node->values[i];
        }
    }
}

static lk_status gathered_sum_begin(lk_call_site at, const lk_strategy *s, const lk_bucket *bucket, gathered_sum *sum)
{
    lk_tensor *sums[LK_MAX_DEVICES], *begun[LK_MAX_DEVICES];
    gathered_sum_list(bucket, sum);
    if (s->ranks > s->n_devices)
        LK_TRY(lk__host_gather(at, s, sum->tensors, sum->n));
    gathered_sum_take_copies(bucket, sum);
    for (int q = 0; q < bucket->n_quantities; q++) {
        int i = bucket->quantities[q];
        LK_TRY(lk__tree_allreduce_begin(at, s->devices, s->n_devices, &lk__transport_inproc, bucket->root.end,
                                        sum->nodes, bucket->n_nodes, i, sums, begun));
        for (int d = 0; d < s->n_devices; d++)
            bucket->sums[d * bucket->n + i] = sums[d];
    }
    return LK_OK;
}

lk_status lk__gathered_sum_begin(lk_call_site at, lk_strategy *s, const lk_bucket *bucket)
{
    lk_device *home = s->devices[0];
    size_t nodes = (size_t)bucket->n_nodes;
    gathered_sum sum = {.nodes = lk__device_calloc(home, nodes, sizeof *sum.nodes),
                        .remote = lk__device_calloc(home, nodes * (size_t)bucket->n, sizeof(lk_tensor *)),
                        .tensors = lk__device_calloc(home, nodes * (size_t)bucket->n_quantities, sizeof *sum.tensors)};
    lk_status status = sum.nodes && sum.remote && sum.tensors ? gathered_sum_begin(at, s, bucket, &sum) : LK_ERR_MEMORY;
    for (int64_t i = 0; i < sum.n; i++)
        lk_tensor_release(sum.tensors[i].copy);
    lk__device_free(home, sum.nodes);
    lk__device_free(home, sum.remote);
    lk__device_free(home, sum.tensors);
    return status;
}
