/* Threads: their start, and clean-up of thread-local memory at their end. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* pthread_create with a stack that suffices for the library and those it calls, also where the limit for stacks
 * (ulimit -s), which is the default size, is lower. Returns 0 or an error number. */
int lk__thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* Registers `end` to be called once when the calling thread ends, in reverse order of registration. It is not called
 * for the main thread, whose end is that of the process. Returns false, without setting an error, if there are too many
 * or the system refuses. */
bool lk__at_thread_end(void (*end)(void));
