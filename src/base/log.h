/* Messages of the library to the handler of lk_log_set; without one they are dropped. */
#pragma once

#include "lockstep/log.h"

void lk__log(lk_log_level level, const char *format, ...) LK_PRINTF(2, 3);
