/* --precise-bn: running statistics of batch-norm, measured after each epoch. */
#pragma once

#include "lockstep/train.h"

/* The pass over one shard that gives its statistics: see lk__shard_pass_fn. */
lk_status lk__statistics_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values);

/* If --precise-bn is given and the model has batch-norm, makes the sum and the loader of lk__measure_statistics. */
lk_status lk__plan_precise_statistics(lk_trainer *trainer);

/* Sets the running statistics from the first batches of the ended epoch. Does nothing if that was not planned. */
lk_status lk__measure_statistics(lk_trainer *trainer);
