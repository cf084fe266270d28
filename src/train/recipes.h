#ifndef LK_TRAIN_RECIPES_H
#define LK_TRAIN_RECIPES_H

#include "lockstep/train.h"

/* The settings of the recipe that trains `model`; of a model that none does, SGD at 0.1, batches of 128, 10 epochs. All
 * else is zero. */
lk_status lk__recipe_of_model(const char *model, lk_train_config *config);

/* What --scale-lr compares with: the batch size of the configuration's recipe, else of its model's. */
lk_status lk__recipe_batch_size(const lk_train_config *config, int64_t *batch_size);

#endif
