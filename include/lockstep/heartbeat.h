/* A process's heartbeat: what it is doing, in memory that whoever started it can read, also when it stands still or has
 * died. `lockstep launch` watches the ranks of a training by it.
 *
 * The watcher makes a heartbeat and hands its descriptor down to the process that it starts, with its number in the
 * environment, LOCKSTEP_HEARTBEAT. A trainer that is made in that process looks for it there. */
#ifndef LOCKSTEP_HEARTBEAT_H
#define LOCKSTEP_HEARTBEAT_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a process as a whole is at. Where several do not go on, the first in this order is more likely the cause. */
typedef enum lk_heart_state {
    LK_HEART_STOPPED, /* by a signal */
    LK_HEART_WORKS,
    LK_HEART_WAITS,            /* for itself: a device, a batch */
    LK_HEART_WAITS_FOR_OTHERS, /* for another process */
    LK_HEART_GONE              /* it has ended; the rest is what it was at before */
} lk_heart_state;

typedef struct lk_heart_report {
    lk_heart_state state;
    int64_t step;       /* the step of training at hand, from 1; 0: training has not begun */
    double silent;      /* seconds without progress, of which at most one counts between two looks */
    char operation[40]; /* "conv2d", "exchange", "wait for a batch" */
    bool follows;       /* it ends because another process has given up, which it has said */
} lk_heart_report;

typedef struct lk_heartbeat lk_heartbeat;

/* Errors: LK_ERR_MEMORY, LK_ERR_IO. */
LK_API lk_status lk_heartbeat_new(lk_heartbeat **heartbeat);
LK_API void lk_heartbeat_release(lk_heartbeat *heartbeat); /* NULL is fine */

/* The descriptor to hand down; it is the heartbeat's, and closed when a program is executed unless the caller, in the
 * new process, says otherwise. */
LK_API int lk_heartbeat_descriptor(const lk_heartbeat *heartbeat);

/* What `process`, which has the descriptor, is at. Progress since the look before is any of these: an operator began,
 * a batch was prepared, a wait ended, data came from the net; a thread that is at work used its core; the process read
 * or wrote while a thread was at work. That a thread looks again and again for what another process sends is none.
 * To be called several times a second; does not wait. */
LK_API void lk_heartbeat_look(lk_heartbeat *heartbeat, int64_t process, lk_heart_report *report);

#ifdef __cplusplus
}
#endif

#endif
