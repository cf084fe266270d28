/* Temporary memory of a call. It usually goes back to the allocator once the call is started: the device runs calls in
 * the order in which they are started, so a later call may use the memory. That is not true of concurrent branches and
 * of graphs, which run again. Their calls take memory from a hold, which reuses it only inside a branch and returns it
 * to the allocator when the hold is freed. On the device's thread. */
#pragma once

#include "core/allocator.h"
#include "lockstep/device.h"

typedef struct lk_hold lk_hold;

/* Temporary memory for a call on the device, from the device's hold if it has one, else from its allocator. */
lk_status lk__device_take(lk_device *device, size_t bytes, lk_block **block);
void lk__device_put(lk_device *device, lk_block *block);

/* Errors: LK_ERR_MEMORY. */
lk_status lk__hold_new(lk_hold **hold);
/* Returns all of the hold's memory to the device. NULL is fine. */
void lk__hold_free(lk_device *device, lk_hold *hold);

/* From here on calls on the device are in branch `branch` and take memory from `hold`; NULL: from the allocator. */
void lk__hold_use(lk_device *device, lk_hold *hold, int branch);
