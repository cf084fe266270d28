/* Threads: their start, and clean-up of thread-local memory at their end. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* pthread_create with a stack that is large enough for this library and those it calls, even if the default (ulimit -s)
 * is smaller. Returns 0 or an error number. */
int lk__thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* Registers `end` to be called once when the calling thread ends, in reverse order of registration. It is not called
 * for the main thread, whose end is that of the process. Returns false, without setting an error, if there are too many
 * or the system refuses. */
bool lk__at_thread_end(void (*end)(void));
