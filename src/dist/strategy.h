/* The interface of a strategy. Each file in strategies/ exports one table, and strategy.c lists them all. */
#pragma once

#include "dist/collectives/links_allreduce.h"
#include "dist/sum/shared_sum.h"
#include "dist/sum/tree.h"

/* A bucket: some of a sum's n quantities, which every shard has given and which are summed together. The nodes cover
 * the root in order. */
typedef struct lk_bucket {
    lk_range root;
    const lk_tree_node *nodes;
    int64_t n_nodes;
    const int *quantities; /* [n_quantities]: indices below n */
    int n_quantities, n;
    const lk_range *roots;    /* [n]: nodes with the shards that have the quantities; NULL: all have all of them */
    const lk_shape *shapes;   /* [n]: of the quantities; NULL: the bucket stays on one device */
    const lk_dtype *dtypes;   /* likewise */
    lk_tensor *const *places; /* [n]: where one device writes its sums; NULL, or places[i] NULL: to new tensors */
    lk_tensor **sums;         /* the result, [replica * n + i]; NULL before */
    lk_tensor **begun;        /* [replica * n + i]: tensors that `begin` leaves for `finish`; NULL before */
    lk_shared_sum_job **jobs; /* a list: the sums that `begin` has started on devices that share their memory */
} lk_bucket;

/* Facts about a strategy that other code depends on. */
enum {
    LK_STRATEGY_STORES = 1,  /* one device stores the variables */
    LK_STRATEGY_RANKS = 2,   /* synchronous, in several processes, each of which is a rank of an lk_group */
    LK_STRATEGY_ROLES = 4,   /* asynchronous, in several processes, each of which has a role */
    LK_STRATEGY_PLUGIN = 8,  /* the devices are, if none are named, those of a PJRT plug-in */
    LK_STRATEGY_SHARDS = 16, /* devices can share the optimizer's state */
    LK_STRATEGY_PROCESSES = LK_STRATEGY_RANKS | LK_STRATEGY_ROLES
};

typedef struct lk_strategy_table {
    const char *name;
    unsigned facts; /* LK_STRATEGY_… */
    /* Fails unless the strategy works with these devices, all of one kind. NULL: it works with any. */
    lk_status (*check)(lk_device *const *devices, int n_devices);
    /* Sets the strategy's own members. On failure the caller releases them. NULL: there is nothing to set. */
    lk_status (*open)(lk_strategy *strategy);
    /* Push the work that sums a bucket up. The devices do other work between the two calls, so `begin` must not make
     * one device wait for another; `finish` (NULL: not needed) may. When `finish` is called the bucket's nodes are no
     * longer set. The sums are valid after `finish`. The caller releases the tensors in `sums` and `begun`. */
    lk_status (*begin)(lk_call_site at, lk_strategy *strategy, const lk_bucket *bucket);
    lk_status (*finish)(lk_call_site at, lk_strategy *strategy, const lk_bucket *bucket);
} lk_strategy_table;

struct lk_strategy {
    const lk_strategy_table *table;
    lk_device *devices[LK_MAX_DEVICES];
    int n_devices;
    lk_device *storage; /* has all variables and receives the sums; NULL: each device has its own variables */
    lk_reduce reduce;
    lk_exchange exchange; /* the way that was asked for */
    bool compressed;
    bool sharded;                  /* each device has the optimizer's state of its slice of the parameters */
    lk_links_allreduce *allreduce; /* NULL: the devices have no links, or there is one device */
    char transport[64];

    /* This process's devices are ranks [first, first + n_devices) of `ranks`, which counts all processes' devices. */
    int first, ranks;
    lk_group *group; /* NULL: one process */
    int *starts;     /* [processes + 1]: each process's first rank; NULL: one process */
    lk_exchange_group exchange_group;
};

/* The table at `index`; NULL past the end. */
const lk_strategy_table *lk__strategy_table_at(int index);

/* Returns whether the strategy called `name` has one of `facts`. name NULL or unknown: false. */
bool lk__strategy_has(const char *name, unsigned facts);

/* Returns whether the strategy has a storing device that does not compute. */
bool lk__has_separate_storage(const lk_strategy *strategy);

/* Errors: LK_ERR_ARGUMENT (there is no such strategy). */
lk_status lk__strategy_check_name(const char *name);

/* The name of the strategy that `n_devices` devices of one process use if none was asked for. */
const char *lk__strategy_default(int n_devices);

extern const lk_strategy_table lk__strategy_one_device;
extern const lk_strategy_table lk__strategy_mirrored;
extern const lk_strategy_table lk__strategy_multi_worker;
extern const lk_strategy_table lk__strategy_central_storage;
extern const lk_strategy_table lk__strategy_parameter_server;
extern const lk_strategy_table lk__strategy_tpu;
