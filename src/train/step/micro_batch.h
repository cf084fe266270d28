/* Micro-batches: a shard that is run in pieces. */
#pragma once

#include "train/step/shard_programs.h"

/* Sets plan.micro_batch and plan.val_micro_batch. The model exists already. Errors: those of lk_plan_micro_batch. */
lk_status lk__plan_micro_batches(lk_trainer *trainer);

/* Calls pass(trainer, piece, seed, …) for each piece of `size` samples (0: the whole shard), in order. values[0 … n):
 * the sums over the pieces, added in the same order. */
lk_status lk__run_pieces(lk_trainer *trainer, int64_t size, lk__shard_pass_fn pass, const lk_shard *shard,
                         lk_tensor *seed, int n, lk_tensor **values);
