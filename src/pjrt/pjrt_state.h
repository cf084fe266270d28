/* The state of an open device of a plug-in. */
#pragma once

#include "core/backend.h"
#include "pjrt/pjrt_memory.h"
#include "pjrt/pjrt_modules.h"

#include <pthread.h>
#include <stdatomic.h>

/* The process's client of its plug-in, and what it has compiled. */
typedef struct lk_pjrt_process {
    lk_pjrt_session *session;
    lk_pjrt_modules *modules;
} lk_pjrt_process;

/* A run of a module that has not ended. */
typedef struct lk_pjrt_work lk_pjrt_work;

typedef struct lk_pjrt_state {
    const lk_pjrt_process *process;
    const lk_pjrt_session *session;
    int device;
    lk_pjrt_memory *memory;

    /* The last entry of the device's queue whose work has all been started. */
    _Atomic uint64_t marked;

    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t ended; /* some work has ended */
    lk_pjrt_work *first, *last;
    int n_works;
    lk_status fault; /* of the first work that failed; it stays */
    char message[512];
    int64_t stamps[LK_STAMPS];
} lk_pjrt_state;

/* Returns the process's client. Loads the plug-in and makes it if there is none yet. */
lk_status lk__pjrt_process(const lk_pjrt_process **process);

/* Notes that work was started, which ends with `done`. Takes the event over. Waits while much work is in flight. */
lk_status lk__pjrt_work_add(lk_pjrt_state *state, lk_pjrt_event *done);
