#ifndef LK_BASE_LOG_H
#define LK_BASE_LOG_H

#include "lockstep/log.h"

void lk__log(lk_log_level level, const char *format, ...) LK_PRINTF(2, 3);

#endif
