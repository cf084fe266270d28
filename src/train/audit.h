/* --audit-every: checks that replicas are equal. */
#pragma once

#include "lockstep/train.h"

/* Warns if --audit-every has nothing to compare. Errors: LK_ERR_ARGUMENT (strategy parameter-server). */
lk_status lk__plan_audit(const lk_trainer *trainer);

/* Called after each step, and with `at_end` after the last one. If an audit is due, waits for the updates so far and
 * compares the replicas. Errors: LK_ERR_STATE, which names the tensor and the replicas that differ. */
lk_status lk__audit(lk_trainer *trainer, bool at_end);
