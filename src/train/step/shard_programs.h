/* The recorded passes over one shard. */
#pragma once

#include "train/trainer_data.h"

#include "lockstep/program.h"

typedef struct lk_shard_programs lk_shard_programs;

/* Pushes one shard's forward pass, and the backward pass from `seed` (NULL: forward alone); sets values[], which are
 * NULL before. */
typedef lk_status (*lk__shard_pass_fn)(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values);

lk_status lk__shard_programs_new(lk_shard_programs **programs);
void lk__shard_programs_release(lk_shard_programs *programs);

/* Records fn(trainer, shard, seed, values[0 … n)). The inputs are the shard's images, labels and indices; with `data`,
 * from which the program prepares images and labels, only the indices and the epoch []; and last the seed, if there is
 * one. Errors: those of lk_program_record. */
lk_program *lk__shard_program_record(lk_trainer *trainer, lk__shard_pass_fn fn, const lk_device_data *data,
                                     const lk_shard *shard, lk_tensor *seed, int n, const lk_program_opts *opts);

/* Begins fn(trainer, shard, seed, values[0 … n)). *replay: a program's replay, of which nothing is pushed yet; NULL:
 * the operators were pushed one by one. If the trainer has step programs, this is lk__begin_device_pass. */
lk_status lk__begin_shard_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk_device_data *data,
                               const lk_shard *shard, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay);
