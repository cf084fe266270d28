/* Functions of a sum over shards for the training step, in addition to the public ones (lockstep/dist.h). */
#pragma once

#include "dist/strategy.h"

/* As lk_shard_sum_new, for quantities that only some shards have: only the shards of roots[i], a node of the tree, have
 * quantity i, and its sum is the one over that node. The caller announces each quantity with lk__shard_sum_expect after
 * each lk_shard_sum_start. roots: [n], must outlive the sum. */
lk_shard_sum *lk__shard_sum_new_below(lk_strategy *strategy, int64_t shards, int n, const lk_range *roots);

/* The arguments of lk_shard_sum_new, and the shards that a replica owns. */
lk_strategy *lk__shard_sum_strategy(const lk_shard_sum *sum);
int64_t lk__shard_sum_shards(const lk_shard_sum *sum);
lk_range lk__shard_sum_owned(const lk_shard_sum *sum, int replica);

/* With several processes: exchanges quantities [0, n_first) first, and the others, which the end of a step completes,
 * after them, in buckets[n]: see lk__remote_nodes_set_buckets. All processes call it alike, before the first shard. */
void lk__shard_sum_set_buckets(lk_shard_sum *sum, int n_first, const int *buckets);

/* For one device with all shards: if shards are added up there, the sum of quantity i is written to places[i], a dense
 * tensor of its shape, instead of a new one. NULL: to a new one. places: [n], must outlive the sum. */
void lk__shard_sum_set_places(lk_shard_sum *sum, lk_tensor *const *places);

/* Announces the shape and dtype of quantity i, which a process needs for its part of the sum; like NULL: no shard of
 * any process has values of it. Call it after lk_shard_sum_start if no shard of this process has values of the
 * quantity, and in any case for a sum of lk__shard_sum_new_below. */
void lk__shard_sum_expect(lk_shard_sum *sum, int i, const lk_tensor *like);

/* As lk_shard_sum_add_some, for a node of the tree that a device has already added up instead of giving its shards one
 * by one. It must begin where the device's previous shards end. */
lk_status lk__shard_sum_add_node(lk_shard_sum *sum, lk_range node, const int *quantities, int n,
                                 lk_tensor *const *values);
