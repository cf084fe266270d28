/* What a strategy provides. Each lives in a file of strategies/ that exports its table; strategy.c lists them. */
#ifndef LK_DIST_STRATEGY_H
#define LK_DIST_STRATEGY_H

#include "dist/tree.h"

typedef struct lk_strategy_table {
    const char *name;
    /* Whether it can work with these devices, all of one kind. */
    lk_status (*check)(lk_device *const *devices, int n_devices);
    /* See lk_strategy_place. Entries are NULL before and, on failure, released by the caller. */
    lk_status (*place)(lk_place at, lk_strategy *strategy, lk_tensor *const *initial, int n, lk_tensor **variables);
    /* sums[r * n + i] from the nodes that cover [0, shards) in order; entries as above. */
    lk_status (*reduce)(lk_place at, lk_strategy *strategy, int64_t shards, const lk_tree_node *nodes, int64_t n_nodes,
                        int n, lk_tensor **sums);
} lk_strategy_table;

struct lk_strategy {
    const lk_strategy_table *table;
    lk_device *devices[LK_MAX_DEVICES];
    int n_devices;
};

/* What lk_shard_sum_new was given. */
lk_strategy *lk__shard_sum_strategy(const lk_shard_sum *sum);
int64_t lk__shard_sum_shards(const lk_shard_sum *sum);

extern const lk_strategy_table lk__strategy_one_device;
extern const lk_strategy_table lk__strategy_mirrored;

#endif
