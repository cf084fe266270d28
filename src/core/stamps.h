/* When calls ran on a device that works by itself, for a recording: the device notes when it comes to a call and when
 * it has done it, and these times are read when the queue's entry is worked off. All on the device's thread. */
#ifndef LK_CORE_STAMPS_H
#define LK_CORE_STAMPS_H

#include "core/backend.h"

/* Whether a call that is recorded now is to be put between the two that follow. */
bool lk__stamps_are_used(lk_device *device);
lk_status lk__stamps_begin(lk_device *device);
/* `started`: when this thread began to start the call. */
lk_status lk__stamps_end(lk_device *device, const lk_call *call, int64_t started);

/* Waits until the device has done everything, and records the calls that were noted. */
lk_status lk__stamps_show(lk_device *device);

#endif
