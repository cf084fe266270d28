/* The plan's numbers. */
#pragma once

#include "train/trainer.h"

/* Checks the configuration and sets the members of the plan that do not depend on data, devices or the built model.
 * model: its name. Errors: LK_ERR_ARGUMENT, which names the option. */
lk_status lk__plan_numbers(const lk_train_config *config, const char *model, lk_plan *plan);

/* Leaves out the evaluation and all that needs one, for a study that trains without it. */
void lk__leave_out_evaluation(lk_train_config *config);

/* Sets the plan's members for the learning rate. lk__plan_numbers calls it; with --scale-lr they depend on
 * train_samples as well, and are set anew once these are known. Errors: LK_ERR_ARGUMENT. */
lk_status lk__plan_schedule(const lk_train_config *config, const char *model, lk_plan *plan);

/* Sets the plan's members for batch-norm from its batch size. lk__plan_numbers calls it. Errors: LK_ERR_ARGUMENT. */
lk_status lk__plan_batch_norm(const lk_train_config *config, lk_plan *plan);

/* Returns the number of shards of a batch: --shards, or the default, doubled until each of `devices` devices has a
 * shard. A training passes 1, since its shards must not depend on its devices; comparisons of devices pass the most. */
int64_t lk__plan_shards(const lk_train_config *config, int64_t batch_size, int devices);

/* Fails with LK_ERR_ARGUMENT unless a batch can be cut into `shards` that give each device one. */
lk_status lk__check_shards(int64_t shards, int64_t batch_size, int devices);
