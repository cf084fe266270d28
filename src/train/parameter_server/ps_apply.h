/* Applies pushes to a store. */
#pragma once

#include "train/parameter_server/ps_store.h"

/* Releases the nodes of a batch that is still incomplete. */
void lk__ps_store_forget_nodes(lk_ps_store *store);

/* Returns whether the batch is one of the training's and was applied. */
bool lk__ps_store_has_applied(const lk_ps_store *store, int64_t batch);

/* Takes a push; gradients NULL: nothing is added. Errors: LK_ERR_FORMAT (an invalid push; nothing is changed), and
 * those of operators. */
lk_status lk__ps_store_push(lk_ps_store *store, const lk_ps_push *push, const float *gradients, const double *sums,
                            lk_ps_pushed *pushed);
