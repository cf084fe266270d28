/* What a sum over shards knows of those that other processes have: which nodes of the tree their devices come to, and
 * in which order all processes exchange, for each has to ask for the same sums in the same order. */
#ifndef LK_DIST_ELSEWHERE_H
#define LK_DIST_ELSEWHERE_H

#include "dist/tree.h"

typedef struct lk_elsewhere lk_elsewhere;

typedef struct lk_elsewhere_opts {
    int64_t shards;
    int first, k, ranks;    /* the devices of this process are ranks [first, first + k) of `ranks` */
    int n;                  /* quantities */
    const lk_shape *shapes; /* [n], and dtypes: the caller's, of the quantities that are known; they live as long */
    const lk_dtype *dtypes;
} lk_elsewhere_opts;

lk_status lk__elsewhere_new(const lk_elsewhere_opts *opts, lk_elsewhere **elsewhere);
void lk__elsewhere_release(lk_elsewhere *elsewhere); /* NULL is fine */

/* How many nodes there can be, here and elsewhere. */
int64_t lk__elsewhere_nodes(const lk_elsewhere *elsewhere);

/* The sums that come next are over a batch of so many samples, which says whose shards are empty. */
void lk__elsewhere_start(lk_elsewhere *elsewhere, int64_t samples);

/* Shape and dtype of quantity i are known; or a shard with samples has no value of it, and so nobody has. */
void lk__elsewhere_learn(lk_elsewhere *elsewhere, int i, bool is_there);
bool lk__elsewhere_knows(const lk_elsewhere *elsewhere, int i);

/* Whether there may be a process that this batch, the first one, teaches nothing. All processes come to the same. */
bool lk__elsewhere_has_idle_ranks(const lk_elsewhere *elsewhere);

/* Puts the other processes' nodes in front of nodes[0 … n), which are this one's, and behind them. Gives how many there
 * are then. present: whether the quantities that are exchanged are there at all. */
int64_t lk__elsewhere_surround(const lk_elsewhere *elsewhere, bool present, lk_tree_node *nodes, int64_t n);

bool lk__elsewhere_is_present(const lk_elsewhere *elsewhere, int i);

/* Buckets that all processes form alike: *quantities of the one that comes after `done` quantities, and how many; all
 * of them are there, or none of them is, for anybody. Gives 0 at the end, and while there is a quantity that is not
 * known, for it might belong to the bucket. */
int lk__elsewhere_bucket(const lk_elsewhere *elsewhere, int done, const int **quantities);

#endif
