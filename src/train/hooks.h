/* Callbacks in a list, and what is asked of all of them, in order: a trainer's, and those of a callback that is made of
 * others. */
#ifndef LK_TRAIN_HOOKS_H
#define LK_TRAIN_HOOKS_H

#include "lockstep/train.h"

typedef struct lk__callbacks {
    lk_callback *list;
    int n, begun; /* begun: of the first so many train_begin was called, and did not fail */
} lk__callbacks;

/* As lk_trainer_add. */
lk_status lk__callbacks_add(lk__callbacks *callbacks, lk_callback callback);
void lk__callbacks_release(lk__callbacks *callbacks);

lk_status lk__callbacks_train_begin(lk__callbacks *callbacks, lk_trainer *trainer);
lk_status lk__callbacks_epoch_begin(const lk__callbacks *callbacks, lk_trainer *trainer, int64_t epoch);
double lk__callbacks_rate(const lk__callbacks *callbacks, lk_trainer *trainer, double epoch, double rate);

/* All callbacks see the report, also where an earlier one has asked for the end; *stopped_by, where it is NULL, becomes
 * the name of the first one to ask. */
lk_status lk__callbacks_step_end(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_step_report *report,
                                 const char **stopped_by);
lk_status lk__callbacks_epoch_end(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_epoch_report *report,
                                  const char **stopped_by);

lk_status lk__callbacks_eval_step(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_eval_report *report);

/* Whether one of them does. */
bool lk__callbacks_want_rest(const lk__callbacks *callbacks, lk_trainer *trainer, int64_t steps);
lk_status lk__callbacks_rest(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_rest_report *report);

/* A member of `state` each, called as the callback is, "name 2" where two have a name. */
lk_status lk__callbacks_save(const lk__callbacks *callbacks, lk_trainer *trainer, lk_state *state);
lk_status lk__callbacks_resume(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_state *state);

/* Of those that have begun. Gives back `status`, or the first error where that is LK_OK. */
lk_status lk__callbacks_train_end(lk__callbacks *callbacks, lk_trainer *trainer, const lk_train_result *result,
                                  lk_status status);

#endif
