/* Times a strategy's exchange. */
#pragma once

#include "lockstep/dist.h"

/* Sums rows of `elements` f32, one on each device, over all devices; if one device stores the variables, the others
 * then fetch a row from it. *seconds: the time of the shortest of several repetitions; a repetition takes as long as in
 * the slowest process. All processes have to call it alike, and get the same number. Blocks. Errors: LK_ERR_MEMORY,
 * those of lk_device_sync. */
lk_status lk__time_exchange(lk_strategy *strategy, int64_t elements, double *seconds);
