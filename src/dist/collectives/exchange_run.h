/* Runs an exchange by the steps of its plan: a step moves words by the transport, and then adds up. */
#pragma once

#include "dist/collectives/exchange_plan.h"
#include "dist/collectives/exchange_row.h"

/* Devices are counted within this process: device d is rank plan->opts.first + d. */
typedef struct lk_exchange_run {
    const lk_exchange_plan *plan;
    const lk_transport *transport;
    lk_device *links;
    const lk_links_table *table;
    const lk_exchange_group *group; /* NULL: one process */
    lk_dtype dtype;
    bool along_tree;               /* the plan does not go flat */
    bool compressed;               /* words travel as bf16 */
    int n_spans;                   /* like spans and values only used if the plan reads nodes in place */
    const lk_exchange_span *spans; /* [n_spans]: in order; words between them belong to no sum */
    const float *const *values;    /* [nodes * n_spans]: of this process's nodes, where they are */
    float *const *buffers;         /* [plan->opts.n]: as many words as plan->words says */
    float *const *sums;            /* [plan->opts.n]: the rows of the sum in the buffers */
    lk_transfer *list;             /* room for lk__exchange_transfers */
} lk_exchange_run;

/* The most transfers that a step lists. */
size_t lk__exchange_transfers(const lk_exchange_plan *plan, int n_spans);

/* On the links' thread. Errors: those of the transport. */
lk_status lk__exchange_run(const lk_exchange_run *run);
