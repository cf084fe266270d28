/* Which calls fail. $LOCKSTEP_FAULT_COUNTS names a file in which all processes of a run count their calls; the test
 * reads it afterwards. $LOCKSTEP_FAULT is the fault, such as
 *
 *     write:12:ENOSPC     the 12th call of write fails
 *     write:12+:ENOSPC    the 12th call and all later ones
 *     write:12:short      the 12th call of write or pwrite writes half of its bytes
 *
 * Only calls of programs and libraries whose name begins with "lockstep" or "liblockstep" count. */
#pragma once

#include <stdbool.h>

typedef enum fault_call {
#define FAULT_CALL(name) FAULT_##name,
#include "fault_calls.def"
#undef FAULT_CALL
    FAULT_CALLS
} fault_call;

enum { FAULT_SHORT = -1 };

/* Counts a call that returns to `caller`. Returns 0, the errno it fails with, or FAULT_SHORT. path: what the call is
 * about, NULL if that is nothing or `fd`; fd: -1 for none. */
int fault_of(fault_call call, const void *caller, const char *path, int fd);
