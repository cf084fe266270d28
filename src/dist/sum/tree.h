/* The fixed summation tree over shards [0, V). Node (lo, hi) has the children (lo, mid) and (mid, hi) with mid =
 * floor((lo + hi) / 2); a node of one shard is a leaf. */
#pragma once

#include "dist/transports/transport.h"
#include "lockstep/dist.h"

#include <stdbool.h>

/* Up to this number of elements a device adds up a whole quantity itself: more hops would cost more than they save in
 * bytes. */
enum { LK_SMALL_QUANTITY = 8192 };

static inline int64_t lk__tree_middle(lk_range node)
{
    return node.begin + (node.end - node.begin) / 2;
}

/* The largest node of the tree over [0, shards) that begins inside `own` and ends with `shard`, a member of `own`. */
lk_range lk__tree_completed(int64_t shards, lk_range own, int64_t shard);

/* The smallest set of nodes of the tree over [0, shards) that covers `own`, in order: fills nodes[0 … count) and
 * returns the count. */
enum { LK_TREE_COVER = 126 };
int lk__tree_cover(int64_t shards, lk_range own, lk_range nodes[LK_TREE_COVER]);

/* Cuts the tree over a batch's shards into nodes, as small as possible with at least `least` of the `samples` in each:
 * a node is cut in two as long as both halves have that many. Returns the node that contains `shard`. */
lk_range lk__tree_group(int64_t shards, int64_t samples, int64_t least, int64_t shard);

/* A node of the tree and its device's values: n quantities, each NULL where absent. */
typedef struct lk_tree_node {
    lk_range range;
    lk_tensor *const *values;
    /* With several processes: the rank that owns the node, and whether that rank is in another process. A remote node
     * has no values here; all its quantities are present, or none of them if `empty`. */
    int rank;
    bool remote, empty;
} lk_tree_node;

/* Writes the tree over the given nodes, in order, in postfix: after node i come additions[i] additions, each of the two
 * values before it. Returns the largest number of values that wait at one time for their partner. */
int lk__tree_postfix(lk_range root, const lk_range *nodes, int n_nodes, unsigned char *additions);

/* Computes the sum over `root` of quantity `i`, given the nodes that cover it in order. Pushes the missing additions to
 * `device`, for elements [elements.begin, elements.end) of the quantity seen as one dimension (elements.end < 0: all of
 * it, in its own shape). `transport` brings the values of other devices. *sum is NULL if every node is absent; it may
 * be a node's own tensor or a view of it, and belongs to the open scope. */
lk_status lk__tree_sum(lk_call_site at, lk_device *device, const lk_transport *transport, lk_range root,
                       const lk_tree_node *nodes, int64_t n_nodes, int i, lk_range elements, lk_tensor **sum);
