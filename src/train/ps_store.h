/* What a parameter server holds: its part of the variables, the optimiser's memory of it, and which batches it has
 * applied. It knows no model: the chief's setup says all. One thread. */
#ifndef LK_TRAIN_PS_STORE_H
#define LK_TRAIN_PS_STORE_H

#include "lockstep/dist.h"
#include "optim/optimizer.h"
#include "train/ps_protocol.h"

#include <stdbool.h>

enum { PS_QUANTITIES = 2 };

/* A node of a batch's tree whose other nodes are still to come. */
typedef struct ps_node {
    lk_range range;
    bool is_empty;                    /* no shard of it had samples */
    lk_tensor *values[PS_QUANTITIES]; /* gradients, sums of batch-norm; NULL: there are none */
} ps_node;

typedef struct ps_store {
    lk_device *device;
    ps_setup setup;
    ps_part *parts;        /* [setup.parts] */
    ps_layer *layers;      /* [setup.layers] */
    lk_tensor *flat;       /* f32 [elements] */
    lk_tensor **variables; /* [parts]: views of it */
    lk_tensor **running;   /* [2 * layers]: mean and variance of each */
    lk_optimizer *optimizer;
    unsigned char *applied; /* a bit for each batch of the training */
    int64_t version;        /* batches applied */
    int64_t restored;       /* `version` when this process began */
    int64_t timed_from;     /* `version`, and the device's processor time, from where on updates are timed; … */
    double timed_seconds;   /* … 0: from none yet */
    float *reply;           /* [elements + statistics]: what is sent to those that pull … */
    float *state;           /* … and the optimiser's state with it, [lk__ps_store_slots * elements]; NULL: not yet */

    int64_t pending; /* the batch that `nodes` are of; -1: none */
    ps_node *nodes;  /* [n_nodes], in the order of their ranges */
    int n_nodes, nodes_capacity;
    bool pending_skipped;
} ps_store;

/* What is wrong with a setup, before anything is made of it; parts and layers: its tables. Errors: LK_ERR_FORMAT. */
lk_status lk__ps_setup_check(const ps_setup *setup, const ps_part *parts, const ps_layer *layers);

/* Copies the tables; variables are zeros until they are written. Errors: LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__ps_store_new(const ps_setup *setup, const ps_part *parts, const ps_layer *layers, ps_store **store);
void lk__ps_store_release(ps_store *store); /* NULL is fine */

/* Whether a number from outside is one of at least `least` things, and not too large to multiply. */
bool lk__ps_is_count(int64_t value, int64_t least);

lk_shape lk__ps_part_shape(const ps_part *part);

/* flat[elements], running[statistics]. Waits. */
lk_status lk__ps_store_write(ps_store *store, const float *flat, const float *running);

/* Into store->reply: parameters, and behind them running statistics. Waits. */
lk_status lk__ps_store_read(ps_store *store);

/* How many kinds of state the optimiser has, each of as many elements as there are. */
int lk__ps_store_slots(const ps_store *store);

/* The optimiser's state, state[slots * elements], after so many updates. Waits. */
lk_status lk__ps_store_write_state(ps_store *store, const float *state, int64_t updates);
lk_status lk__ps_store_read_state(ps_store *store, float *state);

/* Updates since the first few, and the processor time that the device took for them. Waits. */
lk_status lk__ps_store_time(ps_store *store, int64_t *timed, double *seconds);

/* To be called after each push: begins to time updates when it is time to. */
lk_status lk__ps_store_begin_timing(ps_store *store);

/* ps_apply.c: lets go of nodes whose batch has not become complete. */
void lk__ps_store_forget_nodes(ps_store *store);

/* Takes a push; gradients NULL: nothing is to be added. Errors: LK_ERR_FORMAT (a push that makes no sense; nothing is
 * changed), those of operators. */
lk_status lk__ps_store_push(ps_store *store, const ps_push *push, const float *gradients, const double *sums,
                            ps_pushed *pushed);

#endif
