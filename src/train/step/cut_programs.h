/* For devices that compile: a shard's training pass as a program that is cut where batch-norm adds up its groups. Each
 * segment is a module, which depends on the network and the shard alone. */
#pragma once

#include "lockstep/train.h"
#include "lockstep/program.h"

typedef struct lk_cut_programs lk_cut_programs;

lk_status lk__cut_programs_new(lk_cut_programs **programs);
void lk__cut_programs_release(lk_cut_programs *programs); /* NULL is fine */

/* A pass that has begun. Push its segments with `replay`. Segment k < cuts finishes out[n_values + k], the shard's part
 * of a group's sum, which the caller writes to sums[k] before it pushes the next one. */
typedef struct lk_cut_pass {
    lk_replay *replay; /* to be ended */
    int cuts;
    lk_tensor **out, **sums; /* arrays of the program, valid until its next pass; the open scope owns the tensors */
} lk_cut_pass;

/* Begins the pass of a shard that has its images, which is the one at `position` among those that the process runs
 * together: passes in flight at the same time have programs of their own. count: samples of the batch. */
lk_status lk__cut_pass_begin(lk_trainer *trainer, const lk_shard *shard, int position, int64_t count, lk_tensor *seed,
                             lk_cut_pass *pass);
