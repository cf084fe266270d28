/* A folder of checkpoints: lists them, locks the folder, records the best one and removes old ones. */
#pragma once

#include "train/checkpoint/checkpoint.h"

/* Writes "checkpoint-00000120" for 120 steps. */
void lk__checkpoint_name(int64_t steps, char name[LK_CHECKPOINT_NAME]);

/* Lists the steps of the folder's checkpoints, ascending; free *steps with lk__free. A missing folder has none. */
lk_status lk__checkpoint_list(const char *folder, int64_t **steps, int *n);

/* Calls lk__durable_restore for every checkpoint that a killed process was replacing. */
void lk__checkpoint_restore_replaced(const char *folder);

/* The contents of best.json. */
typedef struct lk_best {
    char name[LK_CHECKPOINT_NAME], metric[64]; /* name "": there is no best checkpoint */
    double value;
    int64_t epoch; /* the epoch, from 1, that gave the value */
} lk_best;

/* Without a best.json the name is "". Errors: LK_ERR_FORMAT, LK_ERR_IO. */
lk_status lk__checkpoint_read_best(const char *folder, lk_best *best);
lk_status lk__checkpoint_write_best(const char *folder, const lk_best *best);

/* Removes all checkpoints but the `keep` newest and the one named `best`. Continues after an error and returns the
 * first. */
lk_status lk__checkpoint_prune(const char *folder, int64_t keep, const char *best);

/* Checks that checkpoints can be written into the folder, which need not exist. Errors: LK_ERR_ARGUMENT (the folder is
 * itself a checkpoint). */
lk_status lk__checkpoint_check_folder(const char *folder);

/* Makes the folder, locks it against other writers, and removes what killed processes left besides checkpoints. *lock:
 * a file descriptor; -1 if the file system has no locks. On an error nothing is locked. Errors: LK_ERR_ARGUMENT (the
 * folder is itself a checkpoint), LK_ERR_STATE (another training writes there), LK_ERR_IO. */
lk_status lk__checkpoint_lock(const char *folder, int *lock);

/* Unlocks and sets *lock to -1. Does nothing if it is -1. */
void lk__checkpoint_unlock(int *lock);
