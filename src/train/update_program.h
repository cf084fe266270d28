/* Updates as programs, for devices that compile (lk_backend.modules): run as they are, their calls would be modules
 * each, compiled anew for every rate. */
#pragma once

#include "train/trainer.h"

/* The programs of a lk_replicas. */
typedef struct lk_update_programs lk_update_programs;
void lk__update_programs_release(lk_update_programs *programs); /* NULL is fine */

/* Updates an owner's variables with sums[0 … n_sums) and sums[loss] (loss -1: none), and sets *skipped like
 * lk_optimizer_skipped: a new reference, or NULL. *programs is NULL before the first call. */
lk_status lk__update_program_run(lk_update_programs **programs, lk_replicas *replicas, int owner,
                                 lk_tensor *const *sums, int n_sums, int loss, int64_t samples, double rate,
                                 lk_tensor **skipped);
