/* The internal part of lk_replicas: a model's variables on the devices, and their updates. */
#pragma once

#include "dist/collectives/slices.h"
#include "train/trainer.h"

const lk_model *lk__replicas_model(const lk_replicas *replicas);

/* The variables of the storing device; NULL: there is none. */
lk_tensor *const *lk__replicas_stored(const lk_replicas *replicas);

/* lk_model_update_statistics on every replica; sums[replica * statistics + i]. */
lk_status lk__replicas_set_statistics(lk_replicas *replicas, lk_tensor *const *sums, int64_t samples, double momentum);

/* As lk_replicas_apply, but the update is also skipped if the loss, sums[replica * stride + loss], is not finite. loss
 * -1: there is no loss to look at. */
lk_status lk__replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int loss, int64_t samples,
                             double rate);

/* lk_optimizer_skipped of the first owner's last update. */
lk_tensor *lk__replicas_skipped(const lk_replicas *replicas);

/* Records the update of one owner in a program: see lk__optimizer_record. sums[0 … variables), and sums[loss], the
 * loss; loss -1: there is none. */
lk_status lk__replicas_record(lk_replicas *replicas, int owner, lk_tensor *const *sums, int loss, int64_t samples,
                              lk_tensor *rates);

/* The variables that updates write: lk__replicas_owned(replicas, o), o in [0, lk__replicas_owners). */
int lk__replicas_owners(const lk_replicas *replicas);
lk_tensor *const *lk__replicas_owned(const lk_replicas *replicas, int owner);

/* The slices of the packed parameters, of which each owner has the optimizer's state; NULL: each owner has all state.
 */
const lk_slices *lk__replicas_slices(const lk_replicas *replicas);

/* The copy of lk_replicas_keep; NULL: there is none. make: makes it if it is missing; NULL: LK_ERR_MEMORY. */
float *lk__replicas_kept(lk_replicas *replicas, bool make);

/* Every write to these variables happens between these two calls. */
lk_status lk__replicas_begin_update(lk_replicas *replicas);
lk_status lk__replicas_end_update(lk_replicas *replicas);
