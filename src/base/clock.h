/* Time on the monotonic clock, from an arbitrary start. */
#pragma once

#include <stdint.h>
#include <time.h>

double lk__seconds(void);
int64_t lk__nanoseconds(void);
/* Returns the time `milliseconds` from now, for waiting on a condition that has this clock. */
struct timespec lk__deadline_after(int64_t milliseconds);
