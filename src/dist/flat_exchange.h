/* What an exchange over links works on, and where it lies. */
#ifndef LK_DIST_FLAT_EXCHANGE_H
#define LK_DIST_FLAT_EXCHANGE_H

#include "core/links.h"
#include "dist/group.h"
#include "lockstep/dist.h"

/* A node of the tree in an exchange over links: whose it is, and its place among those of its rank. */
typedef struct lk_flat_node {
    int rank, place;
} lk_flat_node;

/* The processes of an exchange: process p has the ranks [starts[p], starts[p + 1]). */
typedef struct lk_flat_group {
    lk_group *processes;
    const int *starts; /* [processes + 1] */
} lk_flat_group;

/* Words of a row that lie together in every node. */
typedef struct lk_flat_span {
    int64_t begin, words;
} lk_flat_span;

/* An exchange of quantities that lie in one row, the same on every rank. A device has a room for it: the rows of its
 * rank's nodes, unless their words stay where they were made; then a chunk of each node of the others, in their order,
 * then the sum's row. Of a row of `row` words of four bytes rank r adds up and gives out slice r, `slice` words; where
 * slice is 0, every rank adds up all of it. */
typedef struct lk_flat_exchange {
    lk_device *links;
    const lk_links_table *table;
    const lk_flat_group *group; /* NULL: there is one */
    int n, first, ranks;        /* this process's devices are ranks [first, first + n) */
    const lk_flat_node *nodes;
    int n_nodes;
    int64_t row, slice;
    const lk_flat_span *spans; /* [n_spans]: in order; what lies between them is in no sum */
    int n_spans;
    const float **values; /* [n_nodes * n_spans]: where the words of this process's nodes are; NULL: in rows */
    bool compressed;      /* words are f32, and go to other devices as bf16 */
    float **rooms;        /* [n] */
} lk_flat_exchange;

/* The words of span s that are in the chunk of `rank`, as words of the row. */
lk_range lk__flat_shared(const lk_flat_exchange *exchange, int s, int rank);

/* What device d of this process has of node m, from word `begin` of the row on, which is in span s: of its own node all
 * of the span, of others' what is in its chunk. */
const float *lk__flat_words(const lk_flat_exchange *exchange, int d, int m, int s, int64_t begin);

/* Where words of node m, another rank's, come to on device d: all of them, from the chunk's first one on. */
float *lk__flat_chunk(const lk_flat_exchange *exchange, int d, int m);

/* The row of node m, which is device d's. */
float *lk__flat_own_row(const lk_flat_exchange *exchange, int d, int m);

/* The sum's row on device d. */
float *lk__flat_sum_row(const lk_flat_exchange *exchange, int d);

/* Where that begins in its room, whose words these are. */
int64_t lk__flat_sum_begin(const lk_flat_exchange *exchange, int d);
int64_t lk__flat_room_words(const lk_flat_exchange *exchange);

static inline int64_t lk__flat_slice_begin(const lk_flat_exchange *exchange, int rank)
{
    return rank * exchange->slice;
}

static inline int64_t lk__flat_chunk_count(const lk_flat_exchange *exchange)
{
    return exchange->slice ? exchange->slice : exchange->row;
}

#endif
