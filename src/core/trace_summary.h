/* Adding up a recording (lk_trace_summarize). */
#pragma once

#include "core/trace.h"

/* Adds up the seconds that device d of the summary waited for exchanges: seconds[i], i from 0 to n, between marks[i -
 * 1] and marks[i]. There are n marks, in order; the first interval has no begin and the last no end. Errors:
 * LK_ERR_MEMORY. */
lk_status lk__trace_exchange_waits(const lk_trace *trace, int d, const int64_t *marks, int n, double *seconds);
