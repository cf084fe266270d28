/* The contents of a checkpoint in host memory, so that training can continue while they are written. */
#pragma once

#include "io/bytes.h"
#include "optim/optimizer.h"
#include "train/checkpoint/checkpoint.h"

typedef struct lk_checkpoint_contents {
    const lk_model *model; /* borrowed */
    float *variables;      /* one after the other, in the model's order */
    int n_slots;           /* slots of the optimizer's state */
    const char *slot_names[LK_OPTIMIZER_SLOTS];
    float *slots[LK_OPTIMIZER_SLOTS]; /* for each slot the parameters, one after the other */
    float *kept;                      /* the copy of lk_replicas_keep, like `variables`; NULL: there is none */
    lk_bytes state;                   /* state.json */
    lk_bytes implementations;         /* empty: the checkpoint has no such file */
    int64_t steps;                    /* gives the checkpoint its name */
} lk_checkpoint_contents;

/* Allocates memory for the replicas' variables and optimizer state. Errors: LK_ERR_MEMORY; the caller still calls
 * lk__checkpoint_contents_free. */
lk_status lk__checkpoint_contents_init(lk_checkpoint_contents *contents, lk_replicas *replicas);
void lk__checkpoint_contents_free(lk_checkpoint_contents *contents);

/* Copies variables and slots from the devices. Waits for them. */
lk_status lk__checkpoint_contents_copy(lk_checkpoint_contents *contents, lk_replicas *replicas);
