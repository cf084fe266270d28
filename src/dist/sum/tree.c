#include "dist/sum/tree.h"

#include "base/status.h"
#include "core/tensor.h"
#include "ops/ops.h"
#include "ops/pairwise_sum.h"

#include <string.h>

lk_range lk__tree_completed(int64_t shards, lk_range own, int64_t shard)
{
    lk_range node = {0, shards};
    while (node.begin < own.begin || node.end > shard + 1) {
        int64_t middle = lk__tree_middle(node);
        if (shard < middle)
            node.end = middle;
        else
            node.begin = middle;
    }
    return node;
}

static int tree_cover_below(lk_range node, lk_range own, lk_range *nodes, int n)
{
    if (node.end <= own.begin || own.end <= node.begin)
        return n;
    if (own.begin <= node.begin && node.end <= own.end) {
        nodes[n] = node;
        return n + 1;
    }
    int64_t middle = lk__tree_middle(node);
    n = tree_cover_below((lk_range){node.begin, middle}, own, nodes, n);
    return tree_cover_below((lk_range){middle, node.end}, own, nodes, n);
}

int lk__tree_cover(int64_t shards, lk_range own, lk_range nodes[LK_TREE_COVER])
{
    return tree_cover_below((lk_range){0, shards}, own, nodes, 0);
}

lk_range lk__tree_group(int64_t shards, int64_t samples, int64_t least, int64_t shard)
{
    lk_range node = {0, shards};
    while (node.end - node.begin > 1) {
        int64_t middle = lk__tree_middle(node), first = lk_part(samples, shards, middle).begin;
        if (first - lk_part(samples, shards, node.begin).begin < least ||
            lk_part(samples, shards, node.end - 1).end - first < least)
            break;
        if (shard < middle)
            node.end = middle;
        else
            node.begin = middle;
    }
    return node;
}

int lk__tree_postfix(lk_range root, const lk_range *nodes, int n_nodes, unsigned char *additions)
{
    if (n_nodes <= 1) {
        memset(additions, 0, (size_t)n_nodes);
        return 0;
    }
    int64_t middle = lk__tree_middle(root);
    int n_left = 0;
    while (n_left < n_nodes && nodes[n_left].end <= middle)
        n_left++;
    int left = lk__tree_postfix((lk_range){root.begin, middle}, nodes, n_left, additions);
    int right = lk__tree_postfix((lk_range){middle, root.end}, nodes + n_left, n_nodes - n_left, additions + n_left);
    if (n_left == 0 || n_left == n_nodes)
        return left > right ? left : right;
    additions[n_nodes - 1]++;
    return left > right + 1 ? left : right + 1;
}

static lk_tensor *tree_slice(lk_call_site at, lk_tensor *tensor, lk_range elements)
{
    if (!tensor || elements.end < 0)
        return tensor;
    lk_tensor *vector = lk_reshape_at(at, tensor, LK_SHAPE(lk_tensor_count(tensor)));
    return lk_slice_at(at, vector, 0, elements.begin, elements.end);
}

/* True if one pairwise sum gives the same bits as the tree: the nodes are a power of two of whole tensors of this
 * device, each over the same number of shards, and no more than one pass over memory can add up. */
static bool tree_is_pairwise(const lk_device *device, const lk_tree_node *nodes, int64_t n_nodes, int i,
                             lk_range elements)
{
    int64_t shards = nodes[0].range.end - nodes[0].range.begin;
    if (n_nodes < 2 || n_nodes > LK_MAX_PAIRWISE || (n_nodes & (n_nodes - 1)) != 0 || elements.end >= 0)
        return false;
    for (int64_t k = 0; k < n_nodes; k++) {
        const lk_tensor *value = nodes[k].values ? nodes[k].values[i] : NULL;
        bool is_float = value && (value->dtype == LK_F32 || value->dtype == LK_F64);
        if (!is_float || value->storage->device != device || nodes[k].range.end - nodes[k].range.begin != shards)
            return false;
    }
    return true;
}

static lk_status tree_add_pairs(lk_call_site at, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sum)
{
    lk_tensor *values[LK_MAX_PAIRWISE];
    for (int64_t k = 0; k < n_nodes; k++)
        values[k] = nodes[k].values[i];
    *sum = lk__pairwise_sum(at, values, (int)n_nodes);
    return *sum ? LK_OK : lk_error_status();
}

lk_status lk__tree_sum(lk_call_site at, lk_device *device, const lk_transport *transport, lk_range root,
                       const lk_tree_node *nodes, int64_t n_nodes, int i, lk_range elements, lk_tensor **sum)
{
    *sum = NULL;
    if (n_nodes == 1) {
        lk_tensor *whole = nodes[0].values ? nodes[0].values[i] : NULL;
        *sum = transport->reach(at, tree_slice(at, whole, elements), device);
        return whole && !*sum ? lk_error_status() : LK_OK;
    }
    if (tree_is_pairwise(device, nodes, n_nodes, i, elements))
        return tree_add_pairs(at, nodes, n_nodes, i, sum);
    int64_t middle = lk__tree_middle(root), n_left = 0;
    while (n_left < n_nodes && nodes[n_left].range.end <= middle)
        n_left++;
    lk_tensor *left, *right;
    LK_TRY(lk__tree_sum(at, device, transport, (lk_range){root.begin, middle}, nodes, n_left, i, elements, &left));
    LK_TRY(lk__tree_sum(at, device, transport, (lk_range){middle, root.end}, nodes + n_left, n_nodes - n_left, i,
                        elements, &right));
    if (!left || !right) {
        *sum = left ? left : right;
        return LK_OK;
    }
    lk_call add = {.op = &lk__op_add, .place = at, .device = device, .n_in = 2, .n_out = 1, .in = {left, right}};
    if (lk__call(&add) != LK_OK)
        return lk_error_status();
    *sum = add.out[0];
    return LK_OK;
}
