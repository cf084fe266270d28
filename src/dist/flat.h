/* Sums over the tree between devices that have links (core/links.h). What a bucket has lies in one row on every device,
 * packed there by the device itself, or read where it is if its memory is the process's; the rest is the links'
 * queue's: slices are exchanged, each device finishes the tree for its slice, and what it finished goes to all. Kernels
 * that are pushed to the devices meanwhile do not wait. Rows lie in rooms (dist/flat_rooms.h). */
#ifndef LK_DIST_FLAT_H
#define LK_DIST_FLAT_H

#include "dist/tree.h"

typedef struct lk_flat lk_flat;

typedef struct lk_flat_opts {
    const lk_links_table *table;
    lk_device *const *devices; /* of this process, ranks [first, first + n) of `ranks` */
    int n;
    const lk_transport *transport;
    const lk_links_id *id;      /* of links between processes; NULL: they are not what connects these */
    const lk_flat_group *group; /* the processes, which are told where one cannot go on; NULL: all ranks are here */
    int first, ranks;           /* not looked at where neither is there: all ranks are here */
} lk_flat_opts;

/* The devices, and the group, have to live as long. Errors: those of lk__links_open. */
lk_status lk__flat_new(const lk_flat_opts *opts, lk_flat **flat);

/* Waits for what is under way. NULL is fine. */
void lk__flat_release(lk_flat *flat);

/* A node of the tree on the device of a rank. values: NULL where that is in another process. */
typedef struct lk_flat_part {
    lk_range range;
    int rank;
    lk_tensor *const *values;
} lk_flat_part;

enum {
    LK_FLAT_PARTS = LK_LINKS_ADDENDS,
    LK_FLAT_SMALL = 8192 /* elements of a quantity up to which hops count, and not bytes: see lk_flat_sum.whole */
};

/* Whether the tree over these nodes is one that devices can add up: no more than LK_FLAT_PARTS, and not too deep. */
bool lk__flat_takes_tree(lk_range root, const lk_range *nodes, int n_nodes);

/* Whether x is something that a row can hold: f32, or another dtype that the links can add up. */
bool lk__flat_takes(const lk_flat *flat, const lk_tensor *x);

typedef struct lk_flat_sum {
    lk_range root;
    const lk_flat_part *parts; /* in order; no value is absent */
    int n_parts;
    const int *quantities;
    int n_quantities;
    const lk_shape *shapes; /* [quantity] */
    lk_dtype dtype;         /* of all of them */
    bool compressed;        /* see lk_strategy_set_compression */
    bool by_library;        /* the library's own reduction: bits depend on the number of ranks */
    bool whole;             /* every device adds up everything: where hops count, and not bytes */
    lk_tensor **sums;       /* [device * stride + i]: set to new tensors, one reference each; NULL before */
    int stride;
} lk_flat_sum;

/* Asynchronous. Every process has to ask for the same sums in the same order. On failure sums that were made are the
 * caller's to release. Errors: LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (by_library, and the transport has no library). */
lk_status lk__flat_allreduce(lk_flat *flat, const lk_flat_sum *sum);

/* Bytes of rooms on each device, or of values that stay where they are meanwhile, at least, while quantities of so many
 * bytes together are exchanged, of all shards. */
int64_t lk__flat_room_bytes(const lk_flat *flat, int64_t shards, int64_t bytes);

#endif
