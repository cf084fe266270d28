/* The fixed tree over shards [0, V): node (lo, hi) has the children (lo, mid) and (mid, hi), mid = floor((lo + hi) /
 * 2); a node of one shard is a leaf. */
#ifndef LK_DIST_TREE_H
#define LK_DIST_TREE_H

#include "dist/transport.h"
#include "lockstep/dist.h"

#include <stdbool.h>

static inline int64_t lk__tree_middle(lk_range node)
{
    return node.begin + (node.end - node.begin) / 2;
}

/* The largest node of the tree over [0, shards) that begins in `own` and whose last shard is `shard`, one of them. */
lk_range lk__tree_completed(int64_t shards, lk_range own, int64_t shard);

/* The nodes of the tree over [0, shards) that cover `own`, as few as there are, in order: nodes[0 … count). */
enum { LK_TREE_COVER = 126 };
int lk__tree_cover(int64_t shards, lk_range own, lk_range nodes[LK_TREE_COVER]);

/* A node of the tree and what its device has for it: n quantities, each NULL where absent. */
typedef struct lk_tree_node {
    lk_range range;
    lk_tensor *const *values;
    /* Where devices are counted over several processes: whose it is, and whether that is in another one. No value is
     * there then, and all quantities are, or, `values` being NULL too where it is `empty`, none. */
    int rank;
    bool elsewhere, empty;
} lk_tree_node;

/* The tree over the nodes that are there, in order, in postfix: behind node i follow additions[i] additions, each of
 * the two values before it. Gives how many values wait at a time at most for the one they are added to. */
int lk__tree_postfix(lk_range root, const lk_range *nodes, int n_nodes, unsigned char *additions);

/* The sum over `root` of quantity `i`, given the nodes that cover it in order: pushes the missing additions to
 * `device`, over elements [elements.begin, elements.end) of the flattened quantity (elements.end < 0: all of it, in its
 * own shape); `transport` brings what other devices hold. *sum is NULL where every node is absent; it may be a node's
 * own tensor or a view of it. Belongs to the open scope. */
lk_status lk__tree_sum(lk_place at, lk_device *device, const lk_transport *transport, lk_range root,
                       const lk_tree_node *nodes, int64_t n_nodes, int i, lk_range elements, lk_tensor **sum);

#endif
