/* The process's own side of lockstep/heartbeat.h. Each thread has a place of its own in the shared memory and writes
 * there what it does now. Where nobody watches, all of this is one comparison. */
#ifndef LK_BASE_HEARTBEAT_H
#define LK_BASE_HEARTBEAT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What a thread is at. Of a process's threads the one that comes last here names what the process does. */
typedef enum lk__doing_kind {
    LK_DOING_NOTHING,
    LK_DOING_WAIT,     /* for another thread of the process, or a device */
    LK_DOING_WORK,     /* that uses the thread's core, or reads, or writes */
    LK_DOING_OTHERS,   /* waits for another process */
    LK_DOING_OPERATOR, /* work too */
    LK_DOING_KINDS
} lk__doing_kind;

typedef struct lk__doing {
    lk__doing_kind kind;
    const char *what; /* lives at least until the next call; cut to LK_DOING_LENGTH - 1 */
} lk__doing;

/* --- the shared memory -------------------------------------------------------------------------------------------- */

enum { LK_DOING_LENGTH = 40, LK_HEART_THREADS = 256 };
#define LK_HEART_MAGIC UINT64_C(0x32747261656b6c) /* "lkeart2" */
#define LK_HEART_VARIABLE "LOCKSTEP_HEARTBEAT"

/* Written by turns, so that what a process was at when it was killed is whole: the one with the parity of `beats`. */
typedef struct lk__heart_note {
    _Atomic uint32_t kind;
    _Atomic uint64_t what[LK_DOING_LENGTH / sizeof(uint64_t)];
} lk__heart_note;

typedef struct lk__heart_thread {
    _Alignas(128) _Atomic int32_t id; /* the system's; 0: the place is free */
    _Atomic uint64_t beats;
    lk__heart_note notes[2];
} lk__heart_thread;

typedef struct lk__heart {
    uint64_t magic;
    _Atomic int64_t step;
    _Atomic uint32_t follows; /* 1: see lk__heartbeat_follow */
    _Atomic uint64_t beats;   /* of threads without a place, and of those that have ended */
    lk__heart_thread threads[LK_HEART_THREADS];
} lk__heart;

/* --- writing ------------------------------------------------------------------------------------------------------ */

extern _Atomic(lk__heart *) lk__heart_of_process; /* NULL: nobody watches */

/* Begins where the environment names a heartbeat; a second time does nothing. The calling thread is at work: "start".
 */
void lk__heartbeat_begin(void);

void lk__heartbeat_write(lk__doing doing);
lk__doing lk__heartbeat_exchange(lk__doing doing);

/* What the calling thread does from now on. */
static inline void lk__now(lk__doing_kind kind, const char *what)
{
    if (atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed))
        lk__heartbeat_write((lk__doing){kind, what});
}

/* The same for a while: lk__now_again with what came back ends it. */
static inline lk__doing lk__now_for_a_while(lk__doing_kind kind, const char *what)
{
    return atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed)
               ? lk__heartbeat_exchange((lk__doing){kind, what})
               : (lk__doing){0};
}

static inline void lk__now_again(lk__doing before)
{
    lk__now(before.kind, before.what);
}

/* What the calling thread does from now on, which is no progress if that is what it did before: for loops that look
 * again and again. */
void lk__heartbeat_remain(lk__doing doing);

static inline void lk__still(lk__doing_kind kind, const char *what)
{
    if (atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed))
        lk__heartbeat_remain((lk__doing){kind, what});
}

/* The thread goes on with what it does. */
void lk__heartbeat_beat(void);

/* The step of training at hand, from 1. */
void lk__heartbeat_step(int64_t step);

/* The process ends because another one has given up. */
void lk__heartbeat_follow(void);

#endif
