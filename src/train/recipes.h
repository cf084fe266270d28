#ifndef LK_TRAIN_RECIPES_H
#define LK_TRAIN_RECIPES_H

#include "lockstep/train.h"

/* The settings of the recipe that trains `model`; of a model that none does, SGD at 0.1, batches of 128, 10 epochs. All
 * else is zero. */
lk_status lk__recipe_of_model(const char *model, lk_train_config *config);

/* The same of the configuration's own recipe, where it has one, else of the recipe that trains its model. Errors:
 * LK_ERR_ARGUMENT (no such recipe). */
lk_status lk__recipe_of(const lk_train_config *config, lk_train_config *settings);

#endif
