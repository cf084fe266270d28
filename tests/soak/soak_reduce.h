/* Makes a failing case smaller: fewer attempts, settings, disturbances and devices. */
#pragma once

#include "soak_trial.h"

/* Replaces `given` by a smaller case that fails, and `result` by its result. Ends after about so many seconds. */
void soak_reduce(soak_case *given, const soak_programs *programs, double seconds, soak_result *result);
