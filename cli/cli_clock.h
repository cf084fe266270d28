/* Time on the monotonic clock, from an arbitrary start. */
#pragma once

#include <stdint.h>

int64_t cli_milliseconds(void);
