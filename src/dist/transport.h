/* A transport moves bytes between devices. */
#ifndef LK_DIST_TRANSPORT_H
#define LK_DIST_TRANSPORT_H

#include "core/links.h"
#include "dist/group.h"
#include "lockstep/tensor.h"

/* A node of the tree in an exchange over links: whose it is, and its place among those of its rank. */
typedef struct lk_flat_node {
    int rank, place;
} lk_flat_node;

/* The processes of an exchange: process p has the ranks [starts[p], starts[p + 1]). */
typedef struct lk_flat_group {
    lk_group *processes;
    const int *starts; /* [processes + 1] */
} lk_flat_group;

/* An exchange of quantities that lie in one row, the same on every rank. A device has a room for it: the rows of its
 * rank's nodes, then a chunk of each node of the others, in their order, then the sum's row. Of a row of `row` words
 * of four bytes rank r adds up and gives out slice r, `slice` words; where slice is 0, every rank adds up all of it. */
typedef struct lk_flat_exchange {
    lk_device *links;
    const lk_links_table *table;
    const lk_flat_group *group; /* NULL: the links' own library, or nothing, connects processes */
    int n, first, ranks;        /* this process's devices are ranks [first, first + n) */
    const lk_flat_node *nodes;
    int n_nodes;
    int64_t row, slice;
    bool compressed; /* words are f32, and go to other devices as bf16 */
    float **rooms;   /* [n] */
} lk_flat_exchange;

typedef struct lk_transport {
    const char *name;

    /* A tensor with the elements of `tensor` that kernels of `device` can read: the same one where memory is shared,
     * else a copy on its way. Belongs to the open scope, or is `tensor`. NULL for NULL. Asynchronous. NULL where a
     * transport is for links. */
    lk_tensor *(*reach)(lk_place at, lk_tensor *tensor, lk_device *device);

    /* Over links, on the thread of their queue; NULL where there are none. Chunks of nodes come to every device's room,
     * and then slices of the sum, where there are any. */
    lk_status (*scatter)(const lk_flat_exchange *exchange);
    lk_status (*gather)(const lk_flat_exchange *exchange);
    /* The sum's rows of all ranks become their sum, in an order of the library's. NULL: it has none. */
    lk_status (*reduce)(const lk_flat_exchange *exchange);
} lk_transport;

/* What device d of this process has of node m: a chunk, in its own row or as it came. */
float *lk__flat_chunk(const lk_flat_exchange *exchange, int d, int m);

/* What rank `to` needs of node m, which is device d's. */
const float *lk__flat_source(const lk_flat_exchange *exchange, int d, int m, int to);

/* The sum's row on device d. */
float *lk__flat_sum_row(const lk_flat_exchange *exchange, int d);

static inline int64_t lk__flat_chunk_count(const lk_flat_exchange *exchange)
{
    return exchange->slice ? exchange->slice : exchange->row;
}

extern const lk_transport lk__transport_inproc; /* devices that share their memory */
extern const lk_transport lk__transport_peer;   /* links, by copies from device to device: all ranks are here */
extern const lk_transport lk__transport_nccl;   /* links, by NCCL's sends, receives and collectives */
extern const lk_transport lk__transport_mpi;    /* links of devices whose memory is the process's, between processes */

#endif
