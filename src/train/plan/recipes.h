/* The settings that a model, or a configuration, gets from its recipe. */
#pragma once

#include "lockstep/train.h"

/* Sets *config to the settings of the recipe that trains `model`; without one, to SGD at 0.1, batches of 128 and 10
 * epochs. Other members are zero. */
lk_status lk__recipe_of_model(const char *model, lk_train_config *config);

/* Sets *settings likewise, from the configuration's own recipe if it names one, else from that of its model. Errors:
 * LK_ERR_ARGUMENT (no such recipe). */
lk_status lk__recipe_of(const lk_train_config *config, lk_train_config *settings);
