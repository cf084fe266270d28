/* Threads: their start, clean-up of thread-local memory at their end, and waits with a time limit. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* pthread_create with a stack that is large enough for this library and those it calls, even if the default (ulimit -s)
 * is smaller. Returns 0 or an error number. */
int lk__thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* Registers `end` to be called once when the calling thread ends, in reverse order of registration. It is not called
 * for the main thread, whose end is that of the process. Returns false, without setting an error, if there are too many
 * or the system refuses. */
bool lk__at_thread_end(void (*end)(void));

/* Initializes a condition whose deadlines are on the monotonic clock, as those of lk__deadline_after are. */
void lk__condition_init(pthread_cond_t *condition);
/* Returns the time `milliseconds` from now, for pthread_cond_timedwait. */
struct timespec lk__deadline_after(int64_t milliseconds);
