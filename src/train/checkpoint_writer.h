/* Writes checkpoints in a thread of its own. There is room for two: one is written, and the next is filled meanwhile.
 */
#ifndef LK_TRAIN_CHECKPOINT_WRITER_H
#define LK_TRAIN_CHECKPOINT_WRITER_H

#include "train/checkpoint.h"

#include <stdbool.h>

typedef struct lk__checkpoint_writer lk__checkpoint_writer;

/* Locks the folder: lk__checkpoint_lock. Checkpoints after more than `steps` steps are not of this training
 * (LK_ERR_ARGUMENT), or, where that goes on from one of them, could not be read, and are put aside as
 * damaged-checkpoint-N. keep 0: 3. Errors: also LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__checkpoint_writer_new(const char *folder, int64_t steps, bool goes_on, int64_t keep,
                                    lk_replicas *replicas, lk__checkpoint_writer **writer);

/* Before anything is put: one that is there is the best, whether best.json says so or not. Errors: LK_ERR_IO. */
lk_status lk__checkpoint_writer_name_best(lk__checkpoint_writer *writer, const lk__best *best);

/* Waits for what is still to be written, and says in a warning what failed and nobody was told of. NULL is fine. */
void lk__checkpoint_writer_release(lk__checkpoint_writer *writer);

/* Room to fill in; waits where there is none. It stays free until lk__checkpoint_writer_put. */
lk__checkpoint_contents *lk__checkpoint_writer_take(lk__checkpoint_writer *writer);

/* Has it written, and then best.json; NULL: it is not the best so far. */
void lk__checkpoint_writer_put(lk__checkpoint_writer *writer, lk__checkpoint_contents *contents, const lk__best *best);

/* Waits until all is written. Gives back how the last one went; a warning says what failed before. */
lk_status lk__checkpoint_writer_drain(lk__checkpoint_writer *writer);

/* Says in a warning what failed since the last call. */
void lk__checkpoint_writer_warn(lk__checkpoint_writer *writer);

/* Whether one that was to be the best could not be written since the last call, and none is on its way. *kept: the one
 * that is the best then. */
bool lk__checkpoint_writer_lost_best(lk__checkpoint_writer *writer, lk__best *kept);

#endif
