/* The contents of a parameter server: its part of the variables, the optimizer's state for it, and which batches it has
 * applied. It knows no model; the chief's setup describes everything. For one thread. */
#pragma once

#include "optim/optimizer.h"
#include "train/parameter_server/ps_protocol.h"
#include "lockstep/dist.h"

#include <stdbool.h>

enum { LK_PS_QUANTITIES = 2 };

/* A node of a batch's tree that has arrived while other nodes are missing. */
typedef struct lk_ps_node {
    lk_range range;
    bool is_empty;                       /* none of its shards had samples */
    lk_tensor *values[LK_PS_QUANTITIES]; /* gradients, sums of batch-norm; NULL: none */
} lk_ps_node;

typedef struct lk_ps_store {
    lk_device *device;
    lk_ps_setup setup;
    lk_ps_part *parts;     /* [setup.parts] */
    lk_ps_layer *layers;   /* [setup.layers] */
    lk_tensor *packed;     /* f32 [elements] */
    lk_tensor **variables; /* [parts]: views of packed */
    lk_tensor **running;   /* [2 * layers]: mean and variance of each */
    lk_optimizer *optimizer;
    unsigned char *applied; /* a bit for each batch of the training */
    int64_t version;        /* batches applied */
    int64_t restored;       /* `version` when this process started */
    int64_t timed_from;     /* `version` at which the timing of updates began */
    double timed_seconds;   /* the device's processor time then; 0: timing has not begun */
    float *reply;           /* [elements + statistics]: the reply to a pull … */
    int64_t replied;        /* … and its version; -1: none so far */
    float *state; /* [lk__ps_store_slots * elements]: the optimizer's state for a reply; NULL: not needed so far */

    int64_t pending;   /* the batch to which `nodes` belong; -1: none */
    lk_ps_node *nodes; /* [n_nodes], ordered by range */
    int n_nodes;
    int64_t nodes_capacity;
    bool pending_skipped;
} lk_ps_store;

/* Checks a setup from outside before it is used; parts and layers: its tables. Errors: LK_ERR_FORMAT, and what is
 * wrong. */
lk_status lk__ps_setup_check(const lk_ps_setup *setup, const lk_ps_part *parts, const lk_ps_layer *layers);

/* Makes a store. Copies the tables; variables are zeros until written. Errors: LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__ps_store_new(const lk_ps_setup *setup, const lk_ps_part *parts, const lk_ps_layer *layers,
                           lk_ps_store **store);
void lk__ps_store_release(lk_ps_store *store); /* NULL is fine */

/* Returns whether a number from outside is at least `least` and small enough for products not to overflow. */
bool lk__ps_is_count(int64_t value, int64_t least);

lk_shape lk__ps_part_shape(const lk_ps_part *part);

/* Writes the variables: packed[elements] and running[statistics]. Waits. */
lk_status lk__ps_store_write(lk_ps_store *store, const float *packed, const float *running);

/* Reads the variables: packed[elements] and running[statistics]. Waits. */
lk_status lk__ps_store_read(lk_ps_store *store, float *packed, float *running);

/* Makes store->reply the parameters, then the running statistics, that batch `batch` (-1: none) is to be computed from:
 * the newest ones. With max_staleness 0 a worker may be lost while a batch is applied here but not on another server,
 * or before the chief knows. Then the batch is computed again, from the variables before it: the reply stays as it
 * is. Waits. */
lk_status lk__ps_store_make_reply(lk_ps_store *store, int64_t batch);

/* The number of kinds of optimizer state, such as momentum; each has as many elements as the parameters. */
int lk__ps_store_slots(const lk_ps_store *store);

/* Writes or reads the optimizer's state, state[slots * elements]; `updates`: updates it has made. Waits. */
lk_status lk__ps_store_write_state(lk_ps_store *store, const float *state, int64_t updates);
lk_status lk__ps_store_read_state(lk_ps_store *store, float *state);

/* The number of updates timed so far, which leaves out the first few, and the processor time they took on the device.
 * Waits. */
lk_status lk__ps_store_time(lk_ps_store *store, int64_t *timed, double *seconds);

/* Call this after each push: it begins to time updates once the first few are over. */
lk_status lk__ps_store_begin_timing(lk_ps_store *store);
