/* What a thread keeps for itself goes when it ends. */
#ifndef LK_BASE_THREAD_END_H
#define LK_BASE_THREAD_END_H

#include <stdbool.h>

/* Has `end` called, once, when the calling thread ends, later ones before earlier ones. The main thread's end is the
 * process's: then it is not called. False, and no error is set: there is no room, or the system refuses. */
bool lk__at_thread_end(void (*end)(void));

#endif
