/* Messages of the library while it works, such as warnings. The library prints nothing itself: messages go to a
 * handler, and are dropped if there is none. */
#ifndef LOCKSTEP_LOG_H
#define LOCKSTEP_LOG_H

#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_log_level { LK_LOG_DEBUG, LK_LOG_INFO, LK_LOG_WARNING } lk_log_level;

/* A handler. `message` is one line without a newline, valid during the call. It is called from any thread, one call at
 * a time, and must not call lk_log_set. Messages that its own calls of the library cause are dropped. */
typedef void (*lk_log_fn)(void *user, lk_log_level level, const char *message);

/* Sends messages of `level` and above to `handler`, with `user` as its first argument. NULL: drop messages. */
LK_API void lk_log_set(lk_log_fn handler, void *user, lk_log_level level);

#ifdef __cplusplus
}
#endif

#endif
