/* Running one call or task on a device's thread: poison, layouts, memory, the kernel, and reporting its failure. */
#pragma once

#include "core/engine.h"

/* Converts out[0]'s storage to the plain layout, in place. */
extern const lk_op lk__op_plain;

/* out[0] = in[0], in the plain layout. in[0] is the whole of its storage. */
extern const lk_op lk__op_plain_copy;

/* Copies bytes from memory of the process to out[0], from its first element on. For offload devices. Few bytes are
 * carried in the call itself, so that the caller need not wait until they are copied. */
extern const lk_op lk__op_store;
enum { LK_STORE_CARRIED = 64 };
typedef struct lk_store_attrs {
    const void *from; /* NULL: the bytes are in `carried` */
    size_t bytes;
    unsigned char carried[LK_STORE_CARRIED];
} lk_store_attrs;

void lk__execute(lk_device *device, lk_call *call);
void lk__execute_task(lk_task *task);

/* Runs `task` or, if that is NULL, `call` on a thread other than the device's, which keeps its own arithmetic
 * settings. */
void lk__execute_in_caller(lk_device *device, lk_call *call, lk_task *task);

/* Layouts, memory and the kernel of one call, without poison: tasks run their calls with this. An error's message names
 * the call. */
lk_status lk__run_call(lk_device *device, lk_call *call);

/* Keeps the thread's error, whose status is `status`, for lk__error_report_unreported, and clears it. */
void lk__error_note(lk_status status);

/* Sets the thread's error from poison, which then counts as reported, and returns its status. */
lk_status lk__error_report(lk_error *error);

/* Calls lk__error_report for the first failure that was not reported yet. Returns LK_OK if there is none. */
lk_status lk__error_report_unreported(void);
