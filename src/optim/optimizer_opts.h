/* Options of optimizers: names, defaults and ranges. */
#pragma once

#include "optim/optimizer.h"

/* Checks the options and fills in their defaults. Errors: LK_ERR_ARGUMENT. */
lk_status lk__optimizer_check(lk_optimizer_opts *opts);

/* Sets names[i] to the name of state i that `opts` needs, NULL if it needs none. */
void lk__optimizer_slots(const lk_optimizer_opts *opts, const char *names[LK_OPTIMIZER_SLOTS]);

/* Returns whether the kind is Adam or AdamW. */
bool lk__optimizer_is_adam(lk_optimizer_kind kind);
