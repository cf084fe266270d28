/* Initial values of variables. */
#pragma once

#include "nn/model.h"

/* Returns a new tensor with the variable's initial value, which the caller's scope adopts; NULL on failure. */
lk_tensor *lk__initial_value(const lk_variable_spec *spec, lk_device *device, uint64_t seed);

/* Returns whether a standard deviation is allowed: see lk_init. */
bool lk__init_is_deviation(double value);

/* Checks the values of `init`. `kind` and `what`, such as "conv2d" and "weight", are for the message. Errors:
 * LK_ERR_ARGUMENT. */
lk_status lk__init_check(const char *kind, const char *what, lk_init init);

/* The kind's name in model files; NULL: it has none, or takes a value. */
const char *lk__init_name(lk_init_kind kind);

/* Returns `init`, or the initializer `kind` if `init` is the default. */
lk_init lk__init_or(lk_init init, lk_init_kind kind);
