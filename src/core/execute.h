/* Running one task on a device's thread: poison, layouts, memory, the kernel, and what becomes of its failure. */
#ifndef LK_CORE_EXECUTE_H
#define LK_CORE_EXECUTE_H

#include "core/engine.h"

/* A conversion of out[0]'s storage to the plain layout, in place. */
extern const lk_op lk__op_plain;

/* out[0] = in[0], which is all of its storage, in the plain layout. */
extern const lk_op lk__op_plain_copy;

/* Bytes from out[0]'s first element on, from memory of the process. On a device with memory of its own. A few bytes go
 * along with the call, so that nobody has to wait until they were taken. */
extern const lk_op lk__op_store;
enum { LK_STORE_CARRIED = 64 };
typedef struct lk_store_attrs {
    const void *from; /* NULL: carried */
    size_t bytes;
    unsigned char carried[LK_STORE_CARRIED];
} lk_store_attrs;

void lk__execute(lk_device *device, lk_call *call);
void lk__execute_task(lk_task *task);

/* The same on a thread that is not the device's, which keeps its own arithmetic settings; task NULL: `call`. */
void lk__execute_in_caller(lk_device *device, lk_call *call, lk_task *task);

/* Layouts, memory and the kernel of one call, without poison: a task's way to run its calls. An error's message says
 * which call it was. */
lk_status lk__run_call(lk_device *device, lk_call *call);

/* Keeps the thread's error, which `status` is of, for whoever asks for errors next, and clears it. */
void lk__error_note(lk_status status);

/* Sets the thread's error from poison, which then counts as reported, and gives back its status. */
lk_status lk__error_report(lk_error *error);

/* The same for the first failure that was not reported yet; LK_OK where there is none. */
lk_status lk__error_report_unreported(void);

#endif
