/* Collectives: how sums reach every device. */
#ifndef LK_DIST_COLLECTIVE_H
#define LK_DIST_COLLECTIVE_H

#include "dist/tree.h"

/* sums[d] = the sum over shards [0, shards) of quantity `i` on devices[d], given the tree nodes that cover it in order,
 * wherever they are. One reference each; NULL everywhere where every node is absent. A sum may be a node's own tensor:
 * it is not to be written to. Asynchronous.
 *
 * A large quantity is cut into as many slices as there are devices: each device finishes the tree for its slice, then
 * collects the others' slices, which moves as many bytes as a ring all-reduce. A small one, where the number of hops
 * counts and not the bytes, is finished by every device for itself. The bits are the same. */
lk_status lk__tree_allreduce(lk_place at, lk_device *const *devices, int n_devices, const lk_transport *transport,
                             int64_t shards, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sums);

/* The same in two halves. `begin` pushes what a device does by itself once the nodes are there; slices[d] then is the
 * part of the sum that devices[d] has finished, one reference each, or NULL where sums are whole already. Until
 * `finish` has pushed the collecting, sums are not to be used. */
lk_status lk__tree_allreduce_begin(lk_place at, lk_device *const *devices, int n_devices, const lk_transport *transport,
                                   int64_t shards, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sums,
                                   lk_tensor **slices);
lk_status lk__tree_allreduce_finish(lk_place at, lk_device *const *devices, int n_devices,
                                    const lk_transport *transport, lk_tensor *const *sums, lk_tensor *const *slices);

#endif
