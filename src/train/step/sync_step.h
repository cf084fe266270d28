/* --bn sync: a step whose batch-norm layers use the statistics of the whole batch. */
#pragma once

#include "lockstep/train.h"

/* Returns whether a training step has to run all shards in one pass: --bn sync, and the model has batch-norm. */
bool lk__runs_shards_together(const lk_trainer *trainer);

/* Pushes one forward and one backward pass over all shards of the batch; sets sums[r * n_values + i]. */
lk_status lk__run_shards_together(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums);

/* Makes trainer->sums.sync if --bn sync needs it. Errors: those of lk_shard_sum_new. */
lk_status lk__plan_sync(lk_trainer *trainer);

/* Pushes the forward pass alone; sets sums[] to those of the batch-norm statistics. */
lk_status lk__run_statistics_together(lk_trainer *trainer, lk_batch *batch, lk_shard_sum *sum, lk_tensor **sums);
