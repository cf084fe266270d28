/* The steps of an all-reduce over the fixed tree, between ranks that each own a range of shards: who sends which words
 * to whom, and who adds up what. Nothing is moved here, and every rank computes the same plan.
 *
 * A merge is a node of the tree whose shards belong to several ranks, its members. The node's sum is scattered over
 * them: the row of words is cut into as many slices as there are members. A member collects its slice of the sums of
 * both children from those that have it, and adds left + right. Members of the left and the right child take turns in
 * the order of the slices, so that most of a member's slice lies in the slice that it already has: as in recursive
 * halving, each step moves half as many words as the one before. After the root's merge the slices are gathered by
 * doubling. A range of shards that is no node of the tree takes part in all merges that its nodes belong to.
 *
 * A merge of at most `flat` ranks is not divided further: each member collects its slice of all nodes below, and adds
 * them up at once. If that is the root, the exchange is flat: everybody sends slices to everybody. The additions are
 * those of the tree in either case, so the bits are the same.
 *
 *   R. Thakur, R. Rabenseifner, W. Gropp. Optimization of Collective Communication Operations in MPICH. IJHPCA 19, 2005
 */
#pragma once

#include "base/refcount.h"
#include "base/status.h"
#include "dist/collectives/exchange_row.h"

/* The words of slice i of n of a row. */
lk_range lk__exchange_slice(int64_t row, int64_t i, int64_t n);

/* A node of the tree with a value, and the rank that has it, which owns all of its shards. */
typedef struct lk_exchange_node {
    lk_range range;
    int rank;
} lk_exchange_node;

typedef struct lk_exchange_plan_opts {
    const lk_range *owned; /* [ranks]: each rank's shards, at least one; in order they are all shards */
    int ranks;
    const lk_exchange_node *nodes; /* [n_nodes]: in order; shards without a value are in none of them */
    int n_nodes;   /* 0: nothing is added up, and the ranks, in their order, have the slices that are gathered */
    int64_t row;   /* words; a multiple of LK_EXCHANGE_ALIGN if there are nodes */
    bool whole;    /* every member adds up the whole row, and nothing is gathered: for few words */
    bool in_place; /* ranks read the words of their own nodes where they are, not in their buffer */
    int flat;      /* at least 2 */
    int first, n;  /* list only what ranks [first, first + n) have to do */
} lk_exchange_plan_opts;

/* The place of words that a rank has. */
typedef struct lk_exchange_place {
    int node;      /* in place: of this node, which is the rank's own; -1: in the rank's buffer */
    int64_t begin; /* the first word: of the node's row, or of the buffer */
} lk_exchange_place;

typedef struct lk_exchange_transfer {
    int from, to, before; /* ranks; `before`: the same words go to this rank just before; -1: to none */
    lk_range words;       /* of the row */
    bool cut;             /* the words are a node's, and may lie in several pieces */
    lk_exchange_place source;
    int64_t target; /* in the buffer of `to` */
} lk_exchange_transfer;

/* Additions in postfix order, as in lk_links_sum. */
typedef struct lk_exchange_sum {
    int rank;
    lk_range words;
    int64_t target;   /* in the rank's buffer */
    int first, count; /* addends[first … first + count) and additions[…] of the plan */
} lk_exchange_sum;

/* A step makes its transfers, and then its sums. The first `reducing` steps add up, the others only gather. */
typedef struct lk_exchange_step {
    int first_transfer, n_transfers, first_sum, n_sums;
} lk_exchange_step;

/* A rank's buffer holds, in this order, the rows of its own nodes unless they are read in place, the row of the sum,
 * and what it receives. Immutable. */
typedef struct lk_exchange_plan {
    lk_refcount references;
    lk_exchange_plan_opts opts; /* with copies of the arrays */
    int n_steps, reducing;
    lk_exchange_step *steps;
    lk_exchange_transfer *transfers;
    lk_exchange_sum *sums;
    lk_exchange_place *addends;
    unsigned char *additions;
    int64_t *words;   /* [n]: of the buffers of ranks first, first + 1, … */
    lk_range *slices; /* [n]: the words that the rank has when nothing is gathered yet */
} lk_exchange_plan;

/* One reference. Errors: LK_ERR_MEMORY; LK_ERR_UNSUPPORTED: the links cannot add up so many values at once, or the tree
 * over them is too deep. */
lk_status lk__exchange_plan_new(const lk_exchange_plan_opts *opts, lk_exchange_plan **plan);
void lk__exchange_plan_release(lk_exchange_plan *plan); /* NULL is fine */

/* Returns whether the plan is the one for `opts`. */
bool lk__exchange_plan_is_for(const lk_exchange_plan *plan, const lk_exchange_plan_opts *opts);

/* The first word of the sum's row in the buffer of a rank that has so many nodes. */
static inline int64_t lk__exchange_sum_begin(int own_nodes, int64_t row, bool in_place)
{
    return in_place ? 0 : own_nodes * row;
}
