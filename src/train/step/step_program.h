/* Programs of several shards: all that a device has of a batch, or those of a group. */
#pragma once

#include "train/step/shard_programs.h"
#include "train/step/shard_run.h"

typedef struct lk_step_programs lk_step_programs;

/* Sets programs.merges. Devices, model, sums and shard programs exist. */
lk_status lk__step_programs_find_merging(lk_trainer *trainer);

/* Returns whether several shards should be one program. Devices, model, sums and shard programs exist. */
bool lk__step_programs_fit(const lk_trainer *trainer);

/* Returns whether there is one program, which includes the update. */
bool lk__step_is_one_program(const lk_trainer *trainer);

lk_status lk__step_programs_new(lk_step_programs **programs);
void lk__step_programs_release(lk_step_programs *programs);

/* Forgets the programs, and lets later ones compute a few shards at a time in place of merging them. */
lk_status lk__step_programs_split(lk_trainer *trainer);

/* The program of a training step over a batch of so many samples, on the device that has the most of them. The caller
 * inspects and releases it. For the plan's batch size it is the program that will run. NULL: failure, as
 * lk_error_status() says. */
lk_program *lk__step_program_record(lk_trainer *trainer, int64_t samples);

/* Returns the units that programs of the pass run; NULL: shards run one by one. */
const lk_shard_units *lk__step_program_units(const lk_trainer *trainer, lk__shard_pass_fn fn);

/* Like lk__begin_shard_pass, for all shards of a unit at once: `own` has all of their samples, and the index of the
 * first. values: as lk_shard_units says. */
lk_status lk__begin_device_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk_device_data *data,
                                const lk_shard *own, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay);

/* Runs the training step of trainer->progress.update over `batch`, its only batch, if lk__step_is_one_program.
 * *results, a new tensor of the open scope, is as in lk_pending_step. */
lk_status lk__run_training_program(lk_trainer *trainer, lk_batch *batch, lk_tensor **results);
