/* state.json: everything in a checkpoint but tensors. */
#pragma once

#include "io/bytes.h"
#include "train/checkpoint/checkpoint.h"

/* Counts are at most as large as doubles count, so that going on from them does not overflow. */
#define LK_CHECKPOINT_MOST (INT64_C(1) << 53)

/* Begins the JSON object with the contents of info, the model and the optimizer. The caller may add members before
 * lk__checkpoint_state_end. */
void lk__checkpoint_state_begin(lk_bytes *out, const lk_checkpoint_info *info, const lk_model *model,
                                lk_replicas *replicas);

/* Closes the object. Errors: LK_ERR_MEMORY; LK_ERR_ARGUMENT (a name occurs twice, or the object is too large, so
 * it could not be read back). */
lk_status lk__checkpoint_state_end(lk_bytes *out);

/* Reads the file into checkpoint->state, ->info and what these point to. Errors: LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__checkpoint_state_read(const char *path, lk_checkpoint *checkpoint);
