/* All-reduce over the tree between devices that have links (core/links.h). The quantities of a bucket form one row on
 * every device, in a buffer (dist/transports/exchange_buffers.h). Each device packs its own values into the row, unless
 * its memory is the process's: then only small ones are copied, and others read where they are. The links' queue does
 * the rest, by the steps of a plan (dist/collectives/exchange_plan.h): flat, or along the tree. Kernels pushed to the
 * devices in the meantime do not wait. */
#pragma once

#include "dist/sum/tree.h"

typedef struct lk_links_allreduce lk_links_allreduce;

typedef struct lk_links_allreduce_opts {
    const lk_links_table *table;
    lk_device *const *devices; /* of this process: ranks [first, first + n) of `ranks` */
    int n;
    const lk_transport *transport;
    const lk_links_id *id;          /* of links between processes; NULL: the links do not connect processes */
    const lk_exchange_group *group; /* the processes, which are told if one cannot go on; NULL: all ranks are local */
    int first, ranks;               /* ignored, and all ranks are local, if both id and group are NULL */
} lk_links_allreduce_opts;

/* The devices and the group must live as long as *allreduce. Errors: those of lk__links_open. */
lk_status lk__links_allreduce_new(const lk_links_allreduce_opts *opts, lk_links_allreduce **allreduce);

/* Waits for exchanges in flight. NULL is fine. */
void lk__links_allreduce_release(lk_links_allreduce *allreduce);

/* Sets the way of exchanges that begin later. The default is LK_EXCHANGE_AUTO. All ranks need the same. */
void lk__links_allreduce_set_exchange(lk_links_allreduce *allreduce, lk_exchange way);

const lk_transport_cost *lk__links_allreduce_cost(const lk_links_allreduce *allreduce);

/* Returns the way that a sum of `bytes` takes. */
lk_exchange lk__links_allreduce_way(const lk_links_allreduce *allreduce, int64_t bytes, bool compressed);

/* Returns the least power of two of devices, up to `most`, at which it would go along the tree; 0: at none. */
int64_t lk__links_allreduce_tree_devices(const lk_links_allreduce *allreduce, int64_t bytes, bool compressed,
                                         int64_t most);

/* How the devices are linked, for other exchanges between them. */
typedef struct lk_exchange_links {
    lk_device *queue;
    const lk_links_table *table;
    const lk_transport *transport;
} lk_exchange_links;

lk_exchange_links lk__links_allreduce_describe(const lk_links_allreduce *allreduce);

/* A node of the tree on the device of a rank. values: NULL if that rank is in another process. */
typedef struct lk_links_allreduce_part {
    lk_range range;
    int rank;
    lk_tensor *const *values;
} lk_links_allreduce_part;

/* The most nodes of a flat exchange, or of one rank. */
enum { LK_LINKS_ALLREDUCE_PARTS = LK_LINKS_ADDENDS };

/* Returns whether the links can add up x: its dtype is one of theirs, it has no gaps, and no recording is in progress.
 */
bool lk__links_allreduce_takes(const lk_links_allreduce *allreduce, const lk_tensor *x);

typedef struct lk_links_allreduce_sum {
    lk_range root;
    const lk_links_allreduce_part *parts; /* in order; no local value is absent */
    int n_parts;
    const int *quantities;
    int n_quantities;
    const lk_shape *shapes; /* [quantity] */
    lk_dtype dtype;         /* of all of them */
    bool compressed;        /* see lk_strategy_set_compression; only of more than LK_SMALL_QUANTITY elements each */
    bool by_library;        /* use the library's own reduction: the bits then depend on the number of ranks */
    lk_tensor **sums;       /* [device * stride + i]: NULL before; set to new tensors, one reference each */
    int stride;
} lk_links_allreduce_sum;

/* Returns whether devices can add up the tree over these nodes: along the tree any number of them. Flat, as sums in
 * bf16 are exchanged, it must have at most LK_LINKS_ALLREDUCE_PARTS and not be too deep. */
bool lk__links_allreduce_takes_tree(const lk_links_allreduce *allreduce, const lk_links_allreduce_sum *sum);

/* Returns whether devices can add up the tree over `shards` shards flat, and sets *nodes to the number of nodes that
 * the ranks own. */
bool lk__links_allreduce_takes_flat(const lk_links_allreduce *allreduce, int64_t shards, int *nodes);

/* Asynchronous. Every process must ask for the same sums in the same order. On failure the caller releases the sums
 * that were made. Errors: LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (by_library, and the transport has no library). */
lk_status lk__links_allreduce_begin(lk_links_allreduce *allreduce, const lk_links_allreduce_sum *sum);

/* A lower bound for the bytes that an exchange over `shards` shards needs on each device: its buffer, and values that
 * must stay until it ends. bytes: the size of all quantities together. */
int64_t lk__links_allreduce_buffer_bytes(lk_links_allreduce *allreduce, int64_t shards, int64_t bytes);
