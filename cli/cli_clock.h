/* Time on the monotonic clock, from an arbitrary start. */
#pragma once

#include <stdint.h>

int64_t cli_milliseconds(void); /* may be called by a signal handler */

/* GNU timeout sends its signal to the command and at once to the command's process group, so that the command gets it
 * twice. A signal that comes this soon after the first belongs to the same request. */
enum { CLI_SAME_REQUEST_MS = 100 };
