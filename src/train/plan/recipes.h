/* The settings that a model, or a configuration, gets from its recipe. */
#pragma once

#include "lockstep/train.h"

/* Sets *settings to those of the configuration's recipe if it names one, else of the recipe that trains its model;
 * without one, to SGD at 0.1, batches of 128 and 10 epochs. Other members are zero. Errors: LK_ERR_ARGUMENT (no such
 * recipe). */
lk_status lk__recipe_of(const lk_train_config *config, lk_train_config *settings);
