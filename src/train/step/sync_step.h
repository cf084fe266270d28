/* A step that runs all shards of the process together. Groups of batch-norm need it if devices share one, or if
 * operators are pushed one by one. */
#pragma once

#include "lockstep/train.h"

/* Returns whether the sum's shards, from shard `first` of a training batch on, run in one pass: devices share a group,
 * or there are groups and no programs. */
bool lk__runs_shards_together(const lk_trainer *trainer, const lk_shard_sum *sum, int64_t first);

/* Pushes one forward and one backward pass over these shards of the batch; sets sums[r * n_values + i]. */
lk_status lk__run_shards_together(lk_trainer *trainer, lk_shard_sum *sum, int64_t first, lk_batch *batch,
                                  lk_tensor **sums);

/* Pushes the forward pass over all shards alone; sets sums[] to those of the batch-norm statistics. */
lk_status lk__run_statistics_together(lk_trainer *trainer, lk_batch *batch, lk_shard_sum *sum, lk_tensor **sums);
