/* The watched process's side of lockstep/heartbeat.h. Each thread has a slot in the shared memory and writes its
 * current activity there. If nobody watches, each call is one comparison. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The kinds of activity, by rank: a process shows the activity of the thread whose kind comes last in this list. */
typedef enum lk_activity_kind {
    LK_ACTIVITY_NONE,
    LK_ACTIVITY_WAIT,        /* waits for another thread of the process, or a device */
    LK_ACTIVITY_WORK,        /* uses the thread's core, or reads, or writes */
    LK_ACTIVITY_WAIT_REMOTE, /* waits for another process */
    LK_ACTIVITY_OPERATOR,    /* runs an operator, which is work as well */
    LK_ACTIVITY_KINDS
} lk_activity_kind;

typedef struct lk_activity {
    lk_activity_kind kind;
    const char *what; /* must stay valid until the next call; cut to LK_ACTIVITY_LENGTH - 1 */
} lk_activity;

/* --- the shared memory -------------------------------------------------------------------------------------------- */

enum { LK_ACTIVITY_LENGTH = 40, LK_HEART_THREADS = 256 };
#define LK_HEART_MAGIC UINT64_C(0x32747261656b6c) /* "lkeart2" */
#define LK_HEART_VARIABLE "LOCKSTEP_HEARTBEAT"

/* The two notes of a thread are written in turn, so that the last activity of a process that was killed is complete.
 * The parity of `beats` selects the valid one. */
typedef struct lk_heart_note {
    _Atomic uint32_t kind;
    _Atomic uint64_t what[LK_ACTIVITY_LENGTH / sizeof(uint64_t)];
} lk_heart_note;

typedef struct lk_heart_thread {
    _Alignas(128) _Atomic int32_t id; /* thread id of the system; 0: the slot is free */
    _Atomic uint64_t beats;
    lk_heart_note notes[2];
} lk_heart_thread;

typedef struct lk_heart {
    uint64_t magic;
    _Atomic int64_t step;
    _Atomic uint32_t follows; /* set by lk__heartbeat_follow */
    _Atomic uint64_t beats;   /* beats of threads without a slot, and of those that have ended */
    lk_heart_thread threads[LK_HEART_THREADS];
} lk_heart;

/* --- writing ------------------------------------------------------------------------------------------------------ */

extern _Atomic(lk_heart *) lk__heart_of_process; /* NULL: not watched */

/* Opens the heartbeat that the environment names, once per process, and sets the calling thread's activity to
 * "start". */
void lk__heartbeat_begin(void);

void lk__heartbeat_write(lk_activity activity);
lk_activity lk__heartbeat_exchange(lk_activity activity);

/* Sets the activity of the calling thread. */
static inline void lk__activity_set(lk_activity_kind kind, const char *what)
{
    if (atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed))
        lk__heartbeat_write((lk_activity){kind, what});
}

/* Sets the activity for a while. lk__activity_end with the returned value restores the previous one. */
static inline lk_activity lk__activity_begin(lk_activity_kind kind, const char *what)
{
    return atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed)
               ? lk__heartbeat_exchange((lk_activity){kind, what})
               : (lk_activity){0};
}

static inline void lk__activity_end(lk_activity before)
{
    lk__activity_set(before.kind, before.what);
}

/* Sets the activity, for loops that poll: it counts as progress only if the activity changes. */
void lk__heartbeat_remain(lk_activity activity);

static inline void lk__activity_remain(lk_activity_kind kind, const char *what)
{
    if (atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed))
        lk__heartbeat_remain((lk_activity){kind, what});
}

/* Reports progress within the current activity. */
void lk__heartbeat_beat(void);

/* Reports the current step of training, from 1. */
void lk__heartbeat_step(int64_t step);

/* Reports that this process ends because another one has given up. */
void lk__heartbeat_follow(void);
