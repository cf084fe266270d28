/* What the library would like to say while it works. It prints nothing by itself: without a handler messages are
 * dropped. */
#ifndef LOCKSTEP_LOG_H
#define LOCKSTEP_LOG_H

#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_log_level { LK_LOG_DEBUG, LK_LOG_INFO, LK_LOG_WARNING } lk_log_level;

/* `message` is one line without its end and valid only during the call. Called from any thread, one call at a time;
 * it must not call lk_log_set. */
typedef void (*lk_log_fn)(void *user, lk_log_level level, const char *message);

/* Sends messages of `level` and above to `handler`; NULL drops them again. */
LK_API void lk_log_set(lk_log_fn handler, void *user, lk_log_level level);

#ifdef __cplusplus
}
#endif

#endif
