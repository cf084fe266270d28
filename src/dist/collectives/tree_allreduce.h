/* All-reduce along the tree, by operators, one quantity at a time. */
#pragma once

#include "dist/sum/tree.h"

/* Sets sums[d] to the sum of quantity `i` over shards [0, shards) on devices[d], one reference each, given the tree
 * nodes that cover it in order, on any devices. All are NULL if every node is absent. A sum may be a node's own tensor,
 * so it must not be written to. Asynchronous.
 *
 * A large quantity is cut into as many slices as there are devices: each device finishes the tree for its slice, then
 * collects the slices of the others, which moves as many bytes as a ring all-reduce. For a quantity of at most
 * LK_SMALL_QUANTITY elements every device finishes the whole tree. The bits are the same. */
lk_status lk__tree_allreduce(lk_call_site at, lk_device *const *devices, int n_devices, const lk_transport *transport,
                             int64_t shards, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sums);

/* The same in two halves. `begin` pushes the work that a device can do once the nodes are computed; slices[d] is then
 * the part of the sum that devices[d] has finished, one reference each, or NULL if the sums are already whole. Sums
 * must not be used before `finish` has pushed the collection of slices. */
lk_status lk__tree_allreduce_begin(lk_call_site at, lk_device *const *devices, int n_devices,
                                   const lk_transport *transport, int64_t shards, const lk_tree_node *nodes,
                                   int64_t n_nodes, int i, lk_tensor **sums, lk_tensor **slices);
lk_status lk__tree_allreduce_finish(lk_call_site at, lk_device *const *devices, int n_devices,
                                    const lk_transport *transport, lk_tensor *const *sums, lk_tensor *const *slices);

/* Releases tensors[0 … n), sums or slices, and sets them to NULL. */
void lk__tree_allreduce_release(lk_tensor **tensors, int n);
