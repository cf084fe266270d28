/* Clean-up of thread-local memory when a thread ends. */
#pragma once

#include <stdbool.h>

/* Registers `end` to be called once when the calling thread ends, in reverse order of registration. It is not called
 * for the main thread, whose end is that of the process. Returns false, without setting an error, if there are too many
 * or the system refuses. */
bool lk__at_thread_end(void (*end)(void));
