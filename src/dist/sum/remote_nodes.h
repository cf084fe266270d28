/* The nodes of the tree that devices of other processes add up, for a sum over shards, and the order in which all
 * processes exchange quantities. Every process must ask for the same sums in the same order. */
#pragma once

#include "dist/sum/tree.h"

/* The bytes that fill a bucket, and the most that fill a bucket of gradients. Large enough: even at 25 GB/s a rank then
 * sends for 0.3 ms, ten times the latency of the steps among 1,024 ranks. Small enough: what is complete only with the
 * last segment of backward, and so cannot be hidden, is a small part of a large network. */
enum { LK_REMOTE_BUCKET_BYTES = 4 << 20 };

typedef struct lk_remote_nodes lk_remote_nodes;

typedef struct lk_remote_nodes_opts {
    int64_t shards;
    int first, k, ranks;    /* the devices of this process are ranks [first, first + k) of `ranks` */
    int n;                  /* quantities */
    const lk_shape *shapes; /* [n], like dtypes: the caller's, filled in as quantities become known; both must outlive
                               this object */
    const lk_dtype *dtypes;
} lk_remote_nodes_opts;

lk_status lk__remote_nodes_new(const lk_remote_nodes_opts *opts, lk_remote_nodes **remote);
void lk__remote_nodes_release(lk_remote_nodes *remote); /* NULL is fine */

/* The largest number of nodes there can be, local and remote together. */
int64_t lk__remote_nodes_count(const lk_remote_nodes *remote);

/* Sets the order of exchange: quantities [0, n_first), the last one first, since backward finishes that first, and then
 * the others. A bucket has neighbours of the same number in buckets[n], the caller's, which must outlive this object;
 * NULL: until it is full. By default all n quantities are first, and buckets are NULL. All processes call it alike,
 * before the first batch. */
void lk__remote_nodes_set_buckets(lk_remote_nodes *remote, int n_first, const int *buckets);

/* Announces sums over a batch of `samples` samples; this tells which shards are empty. */
void lk__remote_nodes_start(lk_remote_nodes *remote, int64_t samples);

/* `learn` records that quantity i is known: its shape and dtype are set, or (is_present false) a shard with samples has
 * no value of it, and so no shard of any process has one. `know`: whether it is known; `have`: whether it has values.
 */
void lk__remote_nodes_learn(lk_remote_nodes *remote, int i, bool is_present);
bool lk__remote_nodes_know(const lk_remote_nodes *remote, int i);
bool lk__remote_nodes_have(const lk_remote_nodes *remote, int i);

/* Returns whether quantities were still unknown when the batch was announced, and some rank has no samples of it to
 * learn them from. All processes get the same answer. */
bool lk__remote_nodes_have_idle_ranks(const lk_remote_nodes *remote);

/* Puts the nodes of the other processes around the local ones, nodes[0 … n), and returns the number of all. present:
 * whether the exchanged quantities have values at all. */
int64_t lk__remote_nodes_surround(const lk_remote_nodes *remote, bool present, lk_tree_node *nodes, int64_t n);

/* Sets *quantities to the bucket that follows the first `done` quantities, and returns its size. All processes form
 * the same buckets, in which either all quantities have values or none has. Returns 0 at the end, and while any
 * quantity is unknown, because it might belong to the bucket. */
int lk__remote_nodes_bucket(const lk_remote_nodes *remote, int done, const int **quantities);
