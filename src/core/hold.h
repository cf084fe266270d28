/* Memory that a call takes for itself. It goes back when the call has been started: what is started next on the device
 * also runs next. That is not so where calls run in branches beside each other, nor for calls that a graph keeps: there
 * a hold has what they take, gives it out again only within a branch, and lets go of it when nothing can use it any
 * more. On the device's thread. */
#ifndef LK_CORE_HOLD_H
#define LK_CORE_HOLD_H

#include "core/allocator.h"
#include "lockstep/device.h"

typedef struct lk_hold lk_hold;

/* Memory for a call on the device: from the device's hold, if it has one, else from its allocator. */
lk_status lk__device_take(lk_device *device, size_t bytes, lk_block **block);
void lk__device_put(lk_device *device, lk_block *block);

/* Errors: LK_ERR_MEMORY. */
lk_status lk__hold_new(lk_hold **hold);
/* All of its memory goes back to the device. NULL is fine. */
void lk__hold_free(lk_device *device, lk_hold *hold);

/* From here on calls on the device, which are in branch `branch`, take from it; NULL: from the allocator. */
void lk__hold_use(lk_device *device, lk_hold *hold, int branch);

#endif
