/* Records when calls ran on an offload device. The device notes the times at which it reaches a call and finishes it;
 * these times are read when the queue's entry is done. All on the device's thread. */
#pragma once

#include "core/backend.h"

/* Returns whether the device notes times. If so, put each recorded call between lk__stamps_begin and lk__stamps_end. */
bool lk__stamps_are_used(lk_device *device);
lk_status lk__stamps_begin(lk_device *device);
/* `started`: when this thread began to start the call. */
lk_status lk__stamps_end(lk_device *device, const lk_call *call, int64_t started);

/* Waits until the device has done everything, and records the calls that were noted. */
lk_status lk__stamps_trace(lk_device *device);
