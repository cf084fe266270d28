/* Sums of the quantities of a bucket: through shared memory, or over the links between devices. */
#pragma once

#include "dist/strategy.h"

/* A strategy's `begin` for the quantities that can be added up in shared memory. The sums of other quantities stay
 * NULL. */
lk_status lk__bucket_begin_shared(const lk_bucket *bucket, lk_device *const *devices, int n_devices);

/* The same for the quantities that strategy->allreduce can add up. */
lk_status lk__bucket_begin_linked(const lk_bucket *bucket, const lk_strategy *strategy);

/* Returns whether the node is remote and has quantity i. */
bool lk__bucket_is_remote_addend(const lk_bucket *bucket, const lk_tree_node *node, int i);

/* Adds up a whole bucket onto `home`, in one pass over shared memory where that is possible. `devices`, which include
 * `home`, share the work; if there are several, lk__shared_sum_finish must follow. A quantity that only one node has
 * may stay on that node's device. The caller owns the sums; other tensors made here belong to the open scope. */
lk_status lk__bucket_sum_on(lk_call_site at, lk_device *home, lk_device *const *devices, int n_devices,
                            const lk_bucket *bucket);
