/* A thread that writes checkpoints. There are two buffers: one can be filled while the other is written. */
#pragma once

#include "train/checkpoint/checkpoint_contents.h"
#include "train/checkpoint/checkpoint_folder.h"

#include <stdbool.h>

typedef struct lk_checkpoint_thread lk_checkpoint_thread;

/* Starts the thread. *lock: the folder's (lk__checkpoint_lock), which is taken over: *lock becomes -1, also on failure;
 * if it is -1, the folder is locked here. Checkpoints that the folder has after more than `steps` steps belong to
 * another training, and are an error (LK_ERR_ARGUMENT); with `resuming` they are damaged ones of this training, and are
 * renamed to damaged-checkpoint-STEPS. keep: as of lk_checkpoint_opts; 0: 3. Errors: also LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__checkpoint_thread_new(const char *folder, int64_t steps, bool resuming, int64_t keep,
                                    lk_replicas *replicas, int *lock, lk_checkpoint_thread **thread);

/* From now on the files of a checkpoint that is no longer kept are overwritten by a later one, instead of removed. In
 * memory that takes less time, for the pages stay. Call it before the first put. */
void lk__checkpoint_thread_reuse(lk_checkpoint_thread *thread);

/* Records that an existing checkpoint is the best, if best.json does not say so. Call it before the first put. Errors:
 * LK_ERR_IO. */
lk_status lk__checkpoint_thread_name_best(lk_checkpoint_thread *thread, const lk_best *best);

/* Waits until everything is written, and logs warnings for failures that were not reported. NULL is fine. */
void lk__checkpoint_thread_release(lk_checkpoint_thread *thread);

/* Returns a buffer to fill; waits until one is free. It stays free until lk__checkpoint_thread_put. */
lk_checkpoint_contents *lk__checkpoint_thread_take(lk_checkpoint_thread *thread);

/* Queues the buffer for writing, and then best.json, if `best` is not NULL. */
void lk__checkpoint_thread_put(lk_checkpoint_thread *thread, lk_checkpoint_contents *contents, const lk_best *best);

/* Waits until everything is written. Returns the status of the last checkpoint; earlier failures become warnings. */
lk_status lk__checkpoint_thread_drain(lk_checkpoint_thread *thread);

/* Logs a warning for what failed since the last call. */
void lk__checkpoint_thread_warn(lk_checkpoint_thread *thread);

/* True if writing a new best checkpoint has failed since the last call and no other best one is queued. *kept is then
 * the earlier one that is still the best on disk, and otherwise unchanged. */
bool lk__checkpoint_thread_lost_best(lk_checkpoint_thread *thread, lk_best *kept);
