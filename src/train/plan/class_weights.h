/* The factors of the training samples' losses by class: see lk_optimizer_config.class_weights. */
#pragma once

#include "train/trainer.h"

/* Sets the trainer's class weights, and the plan's. The training set is open. Errors: LK_ERR_ARGUMENT (a class that the
 * data do not have, or twice; a factor that is no number of 0 or more), LK_ERR_MEMORY. */
lk_status lk__class_weights_plan(lk_trainer *trainer);

/* Compares the trainer's class weights, which there are, with those that `text` gives classes with these names; names:
 * [classes]; NULL: the training set's. A class that is not among them is a difference. Errors: LK_ERR_MEMORY. */
lk_status lk__class_weights_compare(const lk_trainer *trainer, const char *text, const char *const *names, bool *same);

/* Gives each device the factor of each training sample. Devices find a sample's factor by its index. */
lk_status lk__class_weights_place(lk_trainer *trainer);
