/* The row of quantities that are exchanged together: how it is laid out, and which way it goes. */
#pragma once

#include "dist/transports/transport.h"
#include "lockstep/dist.h"

/* The words of a row between two slices, and quantities in it, begin at multiples of this, for any kernel. */
enum { LK_EXCHANGE_ALIGN = 64 };

/* Words of a row that are contiguous in every node. */
typedef struct lk_exchange_span {
    int64_t begin, words;
} lk_exchange_span;

/* Small quantities come first. Where nodes are read in place, these are copied into one span, for otherwise each would
 * take a message. Every other quantity is a span of its own. */
typedef struct lk_exchange_row {
    int64_t words;  /* a multiple of LK_EXCHANGE_ALIGN */
    int64_t copied; /* the words with small quantities */
    int n_spans;
    bool whole; /* short: every device adds up all of it, and nothing is gathered */
} lk_exchange_row;

/* Lays out n quantities, whose shapes are shapes[quantities[q]]. begins, spans: room for n, or NULL; begins[q] is set
 * to the first word of quantity q, which is less than `copied` if it is small. */
lk_exchange_row lk__exchange_row_lay_out(const lk_shape *shapes, lk_dtype dtype, const int *quantities, int n,
                                         int64_t *begins, lk_exchange_span *spans);

/* The work of exchanging a row: the number of steps, the number of messages that a rank sends one after the other, and
 * the number of times that it sends a row's bytes. */
typedef struct lk_exchange_load {
    double steps, messages, rows;
} lk_exchange_load;

/* are_nodes: each rank's shards are a node of the tree; other ranks send more (exchange_plan_test.c). */
lk_exchange_load lk__exchange_row_load(int64_t ranks, bool whole, bool along_tree, bool are_nodes);

/* Returns whether a row goes along the tree and not flat, because that should be faster; the same on all ranks. A
 * compressed row never does: its sums would be rounded at every step, and their bits would depend on the way. */
bool lk__exchange_row_takes_tree(const lk_transport_cost *cost, lk_exchange way, int64_t ranks, int64_t words,
                                 bool compressed);
