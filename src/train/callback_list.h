/* A list of callbacks, which are called in order: a trainer has one, and so has a callback that is made of others. */
#pragma once

#include "lockstep/train.h"

typedef struct lk_callbacks {
    lk_callback *list;
    int n, begun; /* begun: train_begin of the first `begun` callbacks succeeded */
} lk_callbacks;

/* As lk_trainer_add: takes the callback, also on failure. */
lk_status lk__callbacks_add(lk_callbacks *callbacks, lk_callback callback);
void lk__callbacks_release(lk_callbacks *callbacks);

lk_status lk__callbacks_train_begin(lk_callbacks *callbacks, lk_trainer *trainer);
lk_status lk__callbacks_epoch_begin(const lk_callbacks *callbacks, lk_trainer *trainer, int64_t epoch);
double lk__callbacks_rate(const lk_callbacks *callbacks, lk_trainer *trainer, double epoch, double rate);

/* All callbacks see the report, even if an earlier one asks to stop. If *stopped_by is NULL, it becomes the name of the
 * first callback that asks. */
lk_status lk__callbacks_step_end(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_step_report *report,
                                 const char **stopped_by);
lk_status lk__callbacks_epoch_end(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_epoch_report *report,
                                  const char **stopped_by);

lk_status lk__callbacks_eval_step(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_eval_report *report);

/* Asks all callbacks; returns whether any wants the trainer to come to rest. */
bool lk__callbacks_want_rest(const lk_callbacks *callbacks, lk_trainer *trainer, int64_t steps);
lk_status lk__callbacks_rest(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_rest_report *report);

/* Each callback has a member of `state`, named as the callback. A name that is taken gets the first number
 * from 2 on that is free: "name 2". */
lk_status lk__callbacks_save(const lk_callbacks *callbacks, lk_trainer *trainer, lk_state *state);
/* The last callback comes first: that of checkpoints locks its folder before the others cut their records. */
lk_status lk__callbacks_resume(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_state *state);

/* Calls train_end of the callbacks that have begun. Returns `status`; if that is LK_OK, the first error of a callback.
 */
lk_status lk__callbacks_train_end(lk_callbacks *callbacks, lk_trainer *trainer, const lk_train_result *result,
                                  lk_status status);
