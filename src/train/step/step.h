/* One training or evaluation step. */
#pragma once

#include "train/trainer.h"
#include "lockstep/ops.h"
#include "lockstep/replicas.h"

/* A step has two metrics, loss and hits; with --top-k a third, top-k hits. */
enum { LK_MAX_METRICS = 3 };
int lk__metric_count(const lk_trainer *trainer);

/* Pushes a shard's loss of training: with the plan's label smoothing, each sample's times its class's weight.
 * reduction: LK_REDUCTION_SUM or LK_REDUCTION_NONE. */
lk_tensor *lk__training_loss(const lk_trainer *trainer, lk_tensor *logits, const lk_shard *shard,
                             lk_reduction reduction);

/* Pushes the metrics of a shard: sets metrics[], scalars, each a sum over the samples. training: the loss is that of
 * lk__training_loss. */
lk_status lk__metrics_of(const lk_trainer *trainer, lk_tensor *logits, const lk_shard *shard, bool training,
                         lk_tensor **metrics);

/* The settings of the forward pass in a training step of `update`. */
lk_forward_opts lk__training_opts(const lk_trainer *trainer, const lk_update *update);

/* Pushes one training step over `batch` and appends it to trainer->progress.pending. `rate` is the rate of the update
 * that the batch is part of. */
lk_status lk__train_step(lk_trainer *trainer, lk_batch *batch, double rate);

/* Pushes the passes of some shards of `batch`: as many as `sum` has, from shard `first` on. They are part of
 * trainer->progress.update, which is not applied. sums: as lk_shard_sum_finish sets them, of trainer->sums.n_values. */
lk_status lk__run_training_shards(lk_trainer *trainer, lk_shard_sum *sum, int64_t first, lk_batch *batch,
                                  lk_tensor **sums);

/* Pushes the forward pass of `batch` and appends it likewise. */
lk_status lk__evaluate_step(lk_trainer *trainer, lk_batch *batch);

/* The passes over one shard: see lk__shard_pass_fn. */
lk_status lk__training_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values);
lk_status lk__evaluation_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values);
