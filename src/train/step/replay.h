/* The search for the cause of a number that is not finite. */
#pragma once

#include "train/trainer_progress.h"

/* Repeats the forward and backward passes of a skipped update on replica 0, whose parameters the update left unchanged.
 * Always fails: LK_ERR_NUMERIC, whose message names the first layer whose output is not finite, else the loss, else the
 * first parameter whose gradient is not finite; or an error of the passes. */
lk_status lk__replay_update(lk_trainer *trainer, const lk_update *update);
