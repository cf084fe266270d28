/* Checkpoints that each rank of an elastic training keeps in memory after every update: see LK_MEMORY_VARIABLE in
 * lockstep/checkpoint.h. */
#pragma once

#include "train/checkpoint/checkpoint.h"

/* Looks for the newest checkpoint that any rank finds in the job's folder on its machine. Unless *resumed, which is
 * NULL or a checkpoint of --checkpoint-dir, is newer, *resumed is released and becomes that checkpoint, on every rank:
 * a rank whose machine does not have it gets a copy. All ranks must call this. Errors: LK_ERR_IO, LK_ERR_MEMORY,
 * LK_ERR_BACKEND, those of lk_checkpoint_open. */
lk_status lk__memory_resume(const char *folder, lk_checkpoint **resumed);
