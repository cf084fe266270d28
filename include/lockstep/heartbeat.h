/* Heartbeats: a process writes what it is doing to memory that the process that started it can read, even when it makes
 * no progress or has died. `lockstep launch` watches the ranks of a training this way.
 *
 * The watcher makes a heartbeat, lets the process that it starts inherit the descriptor, and sets LOCKSTEP_HEARTBEAT in
 * its environment to the descriptor's number. A trainer that is made in that process finds it there. */
#ifndef LOCKSTEP_HEARTBEAT_H
#define LOCKSTEP_HEARTBEAT_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The state of a process. If several make no progress, one whose state comes earlier here is more likely the cause. */
typedef enum lk_heart_state {
    LK_HEART_STOPPED,          /* by a signal */
    LK_HEART_WORKS,            /* a thread computes, reads or writes */
    LK_HEART_WAITS,            /* for a device or a batch of its own */
    LK_HEART_WAITS_FOR_OTHERS, /* for another process */
    LK_HEART_GONE              /* it has ended; the report says what it was doing before */
} lk_heart_state;

typedef struct lk_heart_report {
    lk_heart_state state;
    int64_t step;  /* current training step, from 1; 0: training has not begun */
    double silent; /* seconds without progress; at most one is counted between two looks, and a tenth of the time that a
                      thread at work waits for a disk */
    char operation[40]; /* "conv2d", "exchange", "wait for a batch" */
    bool follows;       /* it ends because another process has failed, and has reported that */
} lk_heart_report;

typedef struct lk_heartbeat lk_heartbeat;

/* Makes a heartbeat. Errors: LK_ERR_MEMORY, LK_ERR_IO. */
LK_API lk_status lk_heartbeat_new(lk_heartbeat **heartbeat);
LK_API void lk_heartbeat_release(lk_heartbeat *heartbeat); /* NULL is fine */

/* The descriptor, owned by the heartbeat. It is close-on-exec: clear FD_CLOEXEC in the new process before it executes a
 * program. */
LK_API int lk_heartbeat_descriptor(const lk_heartbeat *heartbeat);

/* Sets *report to what `process`, which has the descriptor, is doing. It has made progress since the last look if an
 * operator began, a batch was prepared, a wait ended or data arrived from the network; if a working thread used its
 * core; or if the process read or wrote while a thread was working. Polling for messages of another process is not
 * progress. Call it several times a second. Does not wait. */
LK_API void lk_heartbeat_look(lk_heartbeat *heartbeat, int64_t process, lk_heart_report *report);

#ifdef __cplusplus
}
#endif

#endif
