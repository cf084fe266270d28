#ifndef LK_CORE_TUNING_H
#define LK_CORE_TUNING_H

#include "core/backend.h"
#include "lockstep/tuning.h"

/* The implementation for a problem, a static text; NULL: the tuning does not say. */
const char *lk__tuning_find(const lk_tuning *tuning, const char *op, const char *problem);

/* Whether lk__tuning_find has found anything. */
bool lk__tuning_was_used(const lk_tuning *tuning);

/* From then on lk__tuning_find answers `implementation`, borrowed, whatever the problem. */
void lk__tuning_prefer(lk_tuning *tuning, const char *implementation);

const lk_backend *lk__tuning_backend(const lk_tuning *tuning);

/* lk_tuning_set of what a call runs on; nothing where its operator has no alternatives. */
lk_status lk__tuning_add_call(lk_tuning *tuning, const lk_call *call);

#endif
