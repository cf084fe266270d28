/* The plan's numbers. */
#pragma once

#include "train/trainer.h"

/* Checks the configuration and sets the members of the plan that do not depend on data, devices or the built model.
 * model: its name. Errors: LK_ERR_ARGUMENT, which names the option. */
lk_status lk__plan_numbers(const lk_train_config *config, const char *model, lk_plan *plan);

/* Fails with LK_ERR_ARGUMENT unless a batch can be cut into `shards` for so many devices. explicit_shards: --shards; 0:
 * not given. */
lk_status lk__check_shards(int64_t explicit_shards, int64_t shards, int64_t batch_size, int devices);
