/* Times a strategy's exchange. */
#pragma once

#include "lockstep/dist.h"

/* Times the exchange of rows of `elements` f32, one on each device: their sum over all devices and, if one device
 * stores the variables, the fetching of a row by the others. *seconds: the shortest of several repetitions, each of
 * which counts as long as the slowest process took. All processes have to call it alike, and get the same number.
 * Blocks. Errors: LK_ERR_MEMORY, those of lk_device_sync. */
lk_status lk__time_exchange(lk_strategy *strategy, int64_t elements, double *seconds);
