/* Runs the shards of a batch, each on the device that owns it. */
#pragma once

#include "lockstep/program.h"
#include "lockstep/train.h"

/* The samples of a range of shards, in a batch of `count` samples that is cut into `total` shards. */
lk_range lk__samples_of_shards(int64_t count, int64_t total, lk_range shards);

/* Sets the shard's tensors, which use the batch's own memory and keep a reference to the batch. For a batch without
 * images it sets only the indices. */
lk_status lk__shard_of_batch(const lk_dataset *dataset, lk_batch *batch, lk_range samples, lk_device *device,
                             lk_shard *shard);

/* A unit is the shards that one call runs. `of` returns the unit that begins with `shard`. If `are_summed`, a unit
 * gives values for each of the tree's nodes that cover it; else for each of its shards: [node or shard * n + i]. */
typedef struct lk_shard_units {
    lk_range (*of)(const lk_trainer *trainer, int replica, int64_t shard);
    bool are_summed;
} lk_shard_units;

/* Like lk_shard_fn, but may leave it to the caller to push the values: *replay is then the replay to push, else NULL.
 * With units `shard` stands for all of a unit's shards. */
typedef lk_status (*lk__shard_begin_fn)(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay);

/* Like lk_run_shards, but pushes replays segment by segment. The values that a segment finishes are summed over the
 * device's shards at once, and over devices while the next segment runs. units: how many shards a call of `begin` runs,
 * whose `user` must then be the trainer; NULL: one. */
lk_status lk__run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk__shard_begin_fn begin,
                         void *user, const lk_shard_units *units, lk_tensor **sums);

/* The same for some of the shards of a batch, which is cut into `shards`: as many as the sum has, from shard `first`
 * on. They must be a node of the tree over all shards. */
lk_status lk__run_shards_of(lk_shard_sum *sum, int64_t first, int64_t shards, int n, const lk_dataset *dataset,
                            lk_batch *batch, lk__shard_begin_fn begin, void *user, const lk_shard_units *units,
                            lk_tensor **sums);
