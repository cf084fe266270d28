/* The layout of a flat exchange over links, in which every device sends slices directly to every other one. */
#pragma once

#include "core/links.h"
#include "dist/process/group.h"
#include "lockstep/dist.h"

/* A node of the tree in an exchange: the rank that owns it, and its position among the nodes of that rank. */
typedef struct lk_flat_node {
    int rank, position;
} lk_flat_node;

/* The processes of an exchange: process p has the ranks [starts[p], starts[p + 1]). */
typedef struct lk_flat_group {
    lk_group *processes;
    const int *starts; /* [processes + 1] */
} lk_flat_group;

/* Words of a row that are contiguous in every node. */
typedef struct lk_flat_span {
    int64_t begin, words;
} lk_flat_span;

/* Exchanges a row of quantities, which is laid out alike on every rank and counted in words of four bytes. Rank r adds
 * up slice r of the row, `slice` words, and sends it to the others; with slice 0 every rank adds up the whole row. The
 * words of a node that a rank needs for this are that rank's chunk of it.
 *
 * A device's buffer holds, in this order: the rows of its own nodes (unless their words stay where they were computed),
 * its chunk of each node of the other ranks, and the row of the sum. */
typedef struct lk_flat_exchange {
    lk_device *links;
    const lk_links_table *table;
    const lk_flat_group *group; /* NULL: one process */
    int n, first, ranks;        /* the devices of this process are ranks [first, first + n) */
    const lk_flat_node *nodes;
    int n_nodes;
    int64_t row, slice;
    const lk_flat_span *spans; /* [n_spans], in order; words between them belong to no sum */
    int n_spans;
    const float **values; /* [n_nodes * n_spans]: the words of this process's nodes; NULL: they are packed in rows */
    bool compressed;      /* words are f32, and travel to other devices as bf16 */
    float **buffers;      /* [n]: by local device */
} lk_flat_exchange;

/* The words of the row that are in span s and in the chunks of `rank`; empty if none are. */
lk_range lk__flat_span_part(const lk_flat_exchange *exchange, int s, int rank);

/* The memory in which device d has the words of node m, from word `begin` of the row on. `begin` is in span s, and the
 * words reach to its end; if the node belongs to another rank, only those in the chunk are there. */
const float *lk__flat_words(const lk_flat_exchange *exchange, int d, int m, int s, int64_t begin);

/* The memory into which device d receives its chunk of node m, which belongs to another rank. */
float *lk__flat_chunk(const lk_flat_exchange *exchange, int d, int m);

/* The row of node m, which belongs to device d. */
float *lk__flat_own_row(const lk_flat_exchange *exchange, int d, int m);

/* The row of the sum on device d. */
float *lk__flat_sum_row(const lk_flat_exchange *exchange, int d);

/* The position of that row in device d's buffer, and the words that the largest buffer needs. */
int64_t lk__flat_sum_begin(const lk_flat_exchange *exchange, int d);
int64_t lk__flat_buffer_words(const lk_flat_exchange *exchange);

/* The first word of a rank's chunks in the row, and their length. */
static inline int64_t lk__flat_slice_begin(const lk_flat_exchange *exchange, int rank)
{
    return rank * exchange->slice;
}

static inline int64_t lk__flat_chunk_count(const lk_flat_exchange *exchange)
{
    return exchange->slice ? exchange->slice : exchange->row;
}
