/* --resume: training continues from a checkpoint. */
#pragma once

#include "lockstep/train.h"

/* Looks into --checkpoint-dir and, in an elastic training, into the job's folder (LK_MEMORY_VARIABLE). With --resume
 * if the former has a checkpoint, and without it if the latter has one, sets trainer->resumed and the settings that
 * must be the checkpoint's. Errors: LK_ERR_ARGUMENT (options that exclude each other; without --resume, a folder
 * that is not empty), LK_ERR_IO, those of lk_checkpoint_open except LK_ERR_NOT_FOUND. */
lk_status lk__resume_open(lk_trainer *trainer);

/* The path of the checkpoint's tuning, which lists the implementations that it was made with. It replaces the file that
 * --algorithms names, if both trainings were given the same name. NULL: nothing replaces it. */
const char *lk__resume_implementations(const lk_trainer *trainer);

/* Leaves checkpoints out of a configuration that a study trains with, often several times; initial weights stay. */
void lk__leave_out_checkpoints(lk_train_config *config);

/* Called when the trainer is built: compares its settings with the checkpoint's, then restores variables and position.
 * Errors: LK_ERR_ARGUMENT, which names all settings that differ; those of reading the checkpoint. */
lk_status lk__resume_restore(lk_trainer *trainer);
