/* Sums over the tree where all memory is the process's own: every device reads the addends and writes the results
 * wherever they are, of many quantities with one entry of its queue. */
#ifndef LK_DIST_SHARED_SUM_H
#define LK_DIST_SHARED_SUM_H

#include "dist/tree.h"

typedef struct lk_shared_sum {
    lk_device *const *devices; /* that share the work */
    int n_devices;
    lk_range root; /* what the nodes cover, in order */
    const lk_tree_node *nodes;
    int64_t n_nodes;
    const int *quantities; /* NULL: 0, 1, … */
    int n_quantities;

    /* results[r * stride + i]: where the sum of quantity i goes, on one of the devices, r in [0, n_results): on
     * devices[r], or, where there is one result alone, the same device of every quantity. They are either all new,
     * without memory yet, or all in use; these may be addends. Left out is a quantity whose results are NULL, and one
     * whose only result is its only addend. */
    lk_tensor *const *results;
    int n_results, stride;
    bool in_use;
} lk_shared_sum;

/* Whether quantity i can be added up so: f32 without gaps, in the process's memory, outside of recordings. */
bool lk__shared_sum_takes(const lk_tree_node *nodes, int64_t n_nodes, int i);

/* A new result takes over the memory of an addend that nobody else holds any more when it comes to that. Of what is
 * large each device adds up a part. Asynchronous. On failure results that are in use may have been written in part. */
lk_status lk__shared_sum(const lk_shared_sum *sum);

/* The same of new results, in two halves: `begin` pushes the work, and only after `finish` results are to be used. In
 * between the devices do what else is pushed, and need not wait for each other. What is to be finished is put before
 * the list *begun, which the caller releases; `finish` finishes all of it. */
typedef struct lk_shared_sum_job lk_shared_sum_job;
lk_status lk__shared_sum_begin(const lk_shared_sum *sum, lk_shared_sum_job **begun);
lk_status lk__shared_sum_finish(lk_shared_sum_job *begun);
void lk__shared_sum_release(lk_shared_sum_job **begun); /* leaves NULL */

#endif
