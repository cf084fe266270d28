/* Sums over the tree when all devices share the process's memory. Every device reads the addends and writes the results
 * wherever they are; one entry of its queue serves any number of quantities. */
#pragma once

#include "dist/sum/tree.h"

typedef struct lk_shared_sum {
    lk_device *const *devices; /* which share the work */
    int n_devices;
    lk_range root; /* the range that the nodes cover, in order */
    const lk_tree_node *nodes;
    int64_t n_nodes;
    const int *quantities; /* NULL: 0, 1, … */
    int n_quantities;

    /* results[r * stride + i], r in [0, n_results): where the sum of quantity i goes. Result r is on devices[r]; a
     * single result may be on any of the devices, the same one for every quantity. Results are either all new, without
     * memory yet, or all in use, in which case they may be addends. A quantity is skipped if its results are NULL, or
     * if its only result is its only addend. */
    lk_tensor *const *results;
    int n_results, stride;
    bool in_use;
} lk_shared_sum;

/* Returns whether quantity i can be added up this way: f32 without gaps in the process's memory, and no recording in
 * progress.
 */
bool lk__shared_sum_takes(const lk_tree_node *nodes, int64_t n_nodes, int i);

/* Pushes the sums. A new result takes over the memory of an addend that nobody else holds by then. The devices divide
 * large sums among them. Asynchronous. On failure, results in use may have been written in part. */
lk_status lk__shared_sum(const lk_shared_sum *sum);

/* The same for new results, in two halves: `begin` pushes the work, and results may be used only after `finish`. In
 * between the devices run other work that is pushed and need not wait for each other. `begin` puts its job at the head
 * of the list *begun, which the caller releases; `finish` finishes every job in the list. */
typedef struct lk_shared_sum_job lk_shared_sum_job;
lk_status lk__shared_sum_begin(const lk_shared_sum *sum, lk_shared_sum_job **begun);
lk_status lk__shared_sum_finish(lk_shared_sum_job *begun);
void lk__shared_sum_release(lk_shared_sum_job **begun); /* sets *begun to NULL */
