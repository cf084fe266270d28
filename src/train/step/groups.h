/* Groups of shards: batch-norm takes the statistics of a group's samples together. A group is a node of the tree over
 * the shards, so the tree adds up its sums. */
#pragma once

#include "lockstep/train.h"

/* Sets sums.groups, and sums.sync if whole steps run all shards together (sync_step.h). Errors: LK_ERR_MEMORY. */
lk_status lk__plan_groups(lk_trainer *trainer);

/* The number of the shard's group. Call it only if there are groups. */
int lk__group_number(const lk_trainer *trainer, int64_t shard);

/* The shards of the shard's group; without groups, the shard alone. */
lk_range lk__group_of(const lk_trainer *trainer, int64_t shard);

/* Returns the largest number of nodes, all of one depth of the tree, that a batch can be cut into without cutting a
 * group. */
int64_t lk__group_nodes(const lk_trainer *trainer);

/* Returns whether devices share a group if the sum's shards, from shard `first` of a batch on, are spread over them. */
bool lk__groups_span_devices(const lk_trainer *trainer, const lk_shard_sum *sum, int64_t first);
