/* Writes a checkpoint's folder. */
#pragma once

#include "train/checkpoint/checkpoint_contents.h"
#include "train/checkpoint/checkpoint_folder.h"

/* Writes FOLDER/checkpoint-STEPS. The folder exists and is locked. spare: the path of an older checkpoint of the same
 * training whose files are overwritten, if it is there; NULL: none. On an error nothing else has changed. Errors:
 * LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__checkpoint_write(const char *folder, const lk_checkpoint_contents *contents, const char *spare);

/* Locks the folder, writes the checkpoint, updates best.json if `best` is not NULL and has a name, and unlocks. Errors:
 * also those of lk__checkpoint_lock. */
lk_status lk__checkpoint_write_alone(const char *folder, const lk_checkpoint_contents *contents, const lk_best *best);
