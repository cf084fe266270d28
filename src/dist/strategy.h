/* What a strategy provides. Each lives in a file of strategies/ that exports its table; strategy.c lists them. */
#ifndef LK_DIST_STRATEGY_H
#define LK_DIST_STRATEGY_H

#include "dist/flat.h"
#include "dist/shared_sum.h"
#include "dist/tree.h"

/* Quantities quantities[0 … n_quantities) of n, which every shard has given: a bucket that is reduced together. The
 * nodes cover the root in order. sums and begun: [replica * n + i], NULL before. */
typedef struct lk_bucket {
    lk_range root;
    const lk_tree_node *nodes;
    int64_t n_nodes;
    const int *quantities;
    int n_quantities, n;
    const lk_shape *shapes; /* [n], and dtypes: of the quantities; NULL of a bucket that stays on one device */
    const lk_dtype *dtypes;
    lk_tensor **sums;
    lk_tensor **begun;        /* what `begin` leaves for `finish` … */
    lk_shared_sum_job **jobs; /* … and what it began where devices share their memory */
} lk_bucket;

/* A strategy's `begin` for the quantities that can be added up in shared memory; of the others sums stay NULL. */
lk_status lk__bucket_begin_shared(const lk_bucket *bucket, lk_device *const *devices, int n_devices);

/* The same for those that strategy->flat can add up. */
lk_status lk__bucket_begin_flat(const lk_bucket *bucket, const lk_strategy *strategy);

/* All of a bucket, on `home` alone: what shared memory allows in one pass over it. `devices`, of which `home` is one,
 * share the work; where they are several, lk__shared_sum_finish is to follow. What one node alone has may stay on its
 * device. The sums are the caller's; what else it makes belongs to the open scope. */
lk_status lk__bucket_sum_on(lk_place at, lk_device *home, lk_device *const *devices, int n_devices,
                            const lk_bucket *bucket);

typedef struct lk_strategy_table {
    const char *name;
    /* Of a strategy whose devices a plug-in has: looks for them, and says why none can be had; `plugin` NULL: the one
     * that the environment names. NULL: the devices are those that lk_devices_open opens. */
    lk_status (*find)(const char *plugin);
    /* Whether it can work with these devices, all of one kind. */
    lk_status (*check)(lk_device *const *devices, int n_devices);
    /* Makes what it keeps; NULL: nothing. On failure that is released by the caller. */
    lk_status (*open)(lk_strategy *strategy);
    /* Pushes what brings the sums of a bucket about. The devices go on with other work between the two: what makes one
     * wait for the others belongs into `finish` (NULL: there is none), of which nodes are no longer set. Sums are good
     * after it. What is in sums and begun is released by the caller. */
    lk_status (*begin)(lk_place at, lk_strategy *strategy, const lk_bucket *bucket);
    lk_status (*finish)(lk_place at, lk_strategy *strategy, const lk_bucket *bucket);
} lk_strategy_table;

struct lk_strategy {
    const lk_strategy_table *table;
    lk_device *devices[LK_MAX_DEVICES];
    int n_devices;
    lk_device *storage; /* of central-storage: where all variables are, and sums go; NULL: each device has its own */
    lk_reduce reduce;
    bool compressed;
    lk_flat *flat; /* NULL: the devices have no links, or there is one */
    char transport[64];

    /* Several processes: the devices are ranks [first, first + n_devices) of `ranks`. One: of themselves. */
    lk_group *group; /* NULL: one */
    int *starts;     /* [processes + 1]: of the processes' ranks; NULL: one */
    int first, ranks;
    lk_flat_group flat_group;
};

/* What lk_shard_sum_new was given. */
lk_strategy *lk__shard_sum_strategy(const lk_shard_sum *sum);
int64_t lk__shard_sum_shards(const lk_shard_sum *sum);
lk_range lk__shard_sum_owned(const lk_shard_sum *sum, int replica); /* a device's shards */

/* Where several processes train: the shards that are given next are of a batch of so many samples. */
void lk__shard_sum_start(lk_shard_sum *sum, int64_t samples);

/* lk_shard_sum_add_some of a node of the tree that a device has added up by itself, instead of its shards one by one:
 * one that begins where the device's shards before it end. */
lk_status lk__shard_sum_add_node(lk_shard_sum *sum, lk_range node, const int *quantities, int n,
                                 lk_tensor *const *values);

extern const lk_strategy_table lk__strategy_one_device;
extern const lk_strategy_table lk__strategy_mirrored;
extern const lk_strategy_table lk__strategy_multi_worker;
extern const lk_strategy_table lk__strategy_central_storage;
extern const lk_strategy_table lk__strategy_parameter_server;
extern const lk_strategy_table lk__strategy_tpu;

#endif
