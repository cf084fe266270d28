/* A tuning: which implementation runs which problem (lockstep/tuning.h). */
#pragma once

#include "core/backend.h"
#include "lockstep/tuning.h"

/* Returns the implementation for a problem, a static text; NULL: the tuning does not say. */
const char *lk__tuning_find(const lk_tuning *tuning, const char *op, const char *problem);

/* Returns whether lk__tuning_find has found anything. */
bool lk__tuning_was_used(const lk_tuning *tuning);

/* Makes lk__tuning_find return `implementation`, which is borrowed, for problems that the tuning does not list. */
void lk__tuning_prefer(lk_tuning *tuning, const char *implementation);

/* Sets the file that messages name. */
lk_status lk__tuning_set_file(lk_tuning *tuning, const char *path);

/* Fails with LK_ERR_UNSUPPORTED: a library cannot do, or has not done, what the tuning wants for a problem. */
lk_status lk__tuning_fail(const lk_tuning *tuning, const lk_call_choice *wanted, const char *why);

const lk_backend *lk__tuning_backend(const lk_tuning *tuning);

/* Adds the implementation that the call runs on, if its operator has alternatives. Errors: those of lk_tuning_set, and
 * LK_ERR_UNSUPPORTED if the call's own tuning requires another one. */
lk_status lk__tuning_add_call(lk_tuning *tuning, const lk_call *call);
