/* Time on the monotonic clock, from an arbitrary start. */
#pragma once

#include <stdint.h>

double lk__seconds(void);
int64_t lk__nanoseconds(void);
