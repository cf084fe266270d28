/* The implementations that run a training: the choice that was asked for, and the list of those in use. */
#pragma once

#include "train/trainer.h"
#include "lockstep/program.h"

/* Sets the devices up as --algorithms and --tf32 ask for. Errors: LK_ERR_ARGUMENT (--tf32 on devices without it),
 * LK_ERR_IO, those of lk_tuning_read. */
lk_status lk__use_algorithms(lk_trainer *trainer);

/* Makes a shard of so many samples on the first device, to record a pass with. Its tensors are only shapes: nothing
 * writes their elements. The caller releases them, also after a failure. */
lk_status lk__make_shard(const lk_trainer *trainer, int64_t samples, lk_shard *shard);

/* Records the training or the evaluation pass of a shard of so many samples, on the first device, to inspect the
 * program. NULL: failure, as lk_error_status() says. */
lk_program *lk__record_pass(lk_trainer *trainer, bool training, int64_t samples, const lk_program_opts *opts);

/* Sets trainer->implementations and their hash in the plan. Model, data and programs exist already. */
lk_status lk__list_implementations(lk_trainer *trainer);

/* Adds to `choices` the implementations that run the passes of training and evaluation under the current tuning of
 * devices[0]. */
lk_status lk__list_choices(lk_trainer *trainer, lk_tuning *choices);
