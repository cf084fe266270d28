/* What an exchange over links works on, and where it lies. */
#ifndef LK_DIST_FLAT_EXCHANGE_H
#define LK_DIST_FLAT_EXCHANGE_H

#include "core/links.h"
#include "dist/group.h"

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

/* What device d of this process has of node m: a chunk, in its own row or as it came. */
float *lk__flat_chunk(const lk_flat_exchange *exchange, int d, int m);

/* What rank `to` needs of node m, which is device d's. */
const float *lk__flat_source(const lk_flat_exchange *exchange, int d, int m, int to);

/* The sum's row on device d. */
float *lk__flat_sum_row(const lk_flat_exchange *exchange, int d);

/* Where that begins in its room, whose words these are. */
int64_t lk__flat_sum_begin(const lk_flat_exchange *exchange, int d);
int64_t lk__flat_room_words(const lk_flat_exchange *exchange);

/* Words of a room with rows for `own` of `nodes` nodes, up to the sum's row. */
int64_t lk__flat_behind_nodes(int64_t own, int64_t nodes, int64_t row, int64_t chunk);

static inline int64_t lk__flat_slice_begin(const lk_flat_exchange *exchange, int rank)
{
    return rank * exchange->slice;
}

static inline int64_t lk__flat_chunk_count(const lk_flat_exchange *exchange)
{
    return exchange->slice ? exchange->slice : exchange->row;
}

#endif
