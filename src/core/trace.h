/* The recorder behind lockstep/trace.h: what ran when, on which thread.
 *
 * Each thread that records has a track of its own, made with its first event, with a lock that only lk_trace_stop
 * contends for. An event is 32 bytes: no text is made while recording, and the shapes of a call are kept once for each
 * combination that the thread meets. Memory is asked for after the interval that an event is about has ended. */
#ifndef LK_CORE_TRACE_H
#define LK_CORE_TRACE_H

#include "core/op.h"
#include "lockstep/trace.h"

#include <stdatomic.h>

/* On whose behalf an operator runs. A property of the calling thread: of the one that pushes, handed on with the entry
 * of the queue to the one that runs it. */
typedef enum lk__phase { LK_PHASE_COMPUTE, LK_PHASE_SHARD_SUM, LK_PHASE_EXCHANGE, LK_PHASE_COUNT } lk__phase;

lk__phase lk__phase_current(void);

/* Gives back the phase before. */
lk__phase lk__phase_set(lk__phase phase);

typedef enum lk__trace_kind {
    LK_TRACE_CALL,          /* number: its phase */
    LK_TRACE_PROGRAM,       /* a task, with the calls in it. number: its phase */
    LK_TRACE_WAIT_DEVICE,   /* a queue waits for what another one computes, or computes before it exchanges */
    LK_TRACE_WAIT_EXCHANGE, /* … for what another one is doing in phase exchange */
    LK_TRACE_WAIT_CORE,     /* … is there, and the queue's thread was not woken yet */
    LK_TRACE_IDLE,          /* a queue has nothing to run */
    LK_TRACE_QUEUED,        /* not an interval. number: entries in the queue */
    LK_TRACE_WAIT_RESULT,   /* a caller waits for a device */
    LK_TRACE_WAIT_ROOM,     /* a caller waits for room in a queue */
    LK_TRACE_WAIT_BATCH,    /* a caller waits for a loader's workers */
    LK_TRACE_PREPARE,       /* number: the batch */
    LK_TRACE_PUSH_STEP,     /* number: the batch */
    LK_TRACE_KIND_COUNT
} lk__trace_kind;

/* What a call is a case of. Words: see lk__problem_read. */
typedef struct lk__trace_problem {
    struct lk__trace_problem *next; /* of the same bucket */
    const lk_op *op;
    double flops; /* of a call */
    int number;   /* within the track, from 0 */
    int n_in, n_out;
    int n_words;
    uint64_t hash;
    int64_t words[];
} lk__trace_problem;

typedef struct lk__trace_event {
    int64_t begin, end;               /* CLOCK_MONOTONIC, nanoseconds */
    const lk__trace_problem *problem; /* of LK_TRACE_CALL */
    uint32_t number;
    uint32_t kind; /* lk__trace_kind */
} lk__trace_event;

enum { LK_TRACE_CHUNK = 4096, LK_TRACE_BUCKETS = 256, LK_TRACE_NAME = 24 };

typedef struct lk__trace_chunk {
    struct lk__trace_chunk *next;
    int n;
    lk__trace_event events[LK_TRACE_CHUNK];
} lk__trace_chunk;

typedef enum lk__track_kind { LK_TRACK_DEVICE, LK_TRACK_LINKS, LK_TRACK_CALLER, LK_TRACK_LOADER } lk__track_kind;

/* Of one thread. Events are in the order of their ends; they nest or lie apart. */
typedef struct lk__trace_track {
    struct lk__trace_track *next;
    lk__track_kind kind;
    char name[LK_TRACE_NAME];
    lk__trace_chunk *first, *last;
    lk__trace_problem *buckets[LK_TRACE_BUCKETS];
    int n_problems;
    int64_t dropped;
} lk__trace_track;

struct lk_trace {
    int64_t began, ended;
    lk__trace_track *tracks;
    int64_t dropped; /* of threads that had no memory for a track */
};

/* --- recording ---------------------------------------------------------------------------------------------------- */

/* When recording began; 0: nothing is recorded. */
extern _Atomic int64_t lk__trace_origin;

int64_t lk__trace_clock(void);

static inline bool lk__trace_is_on(void)
{
    return atomic_load_explicit(&lk__trace_origin, memory_order_relaxed) != 0;
}

/* When an interval begins: now; 0 where nothing is recorded. */
static inline int64_t lk__trace_begin(void)
{
    return lk__trace_is_on() ? lk__trace_clock() : 0;
}

/* The interval from `began` until now. One that began before recording did counts from there on. */
void lk__trace_end(lk__trace_kind kind, int64_t began, int64_t number);

/* The same of a call that has run, in the thread's phase. */
void lk__trace_end_call(const lk_call *call, int64_t began);

/* A call in the thread's phase whose times are known later: only to the recording that is on now. */
typedef struct lk__trace_noted {
    int64_t origin;                   /* 0: nothing was recorded */
    const lk__trace_problem *problem; /* NULL: there was no room */
    uint32_t number;
} lk__trace_noted;

lk__trace_noted lk__trace_note_call(const lk_call *call);

/* On the same thread. */
void lk__trace_show_call(const lk__trace_noted *noted, int64_t began, int64_t ended);

/* The interval from `began` until `ended`, of which recording may have missed the beginning. */
void lk__trace_interval(lk__trace_kind kind, int64_t began, int64_t ended, int64_t number);

/* What the calling thread is in a recording; without, a caller. Copies the name, cut to what there is room for. */
void lk__trace_name_thread(lk__track_kind kind, const char *name);

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* "conv2d" and its like, and the category, of a call in `phase` (others: of the kind). Static. */
const char *lk__trace_event_name(const lk__trace_event *event);
const char *lk__trace_event_category(const lk__trace_event *event);
const char *lk__phase_category(lk__phase phase);

/* Operand i of the problem, outputs after inputs; false: an optional one that was not given. */
bool lk__problem_operand(const lk__trace_problem *problem, int i, lk_dtype *dtype, lk_shape *shape);

/* The tracks in the order in which they are shown: by kind, then by name, numbers in it as numbers. To be freed.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__trace_sorted_tracks(const lk_trace *trace, lk__trace_track ***tracks, int *count);

/* Seconds that device d of the summary's has waited for exchanges: seconds[i], i from 0 to n, before marks[i] and
 * behind the mark before; n marks, in order. Errors: LK_ERR_MEMORY. */
lk_status lk__trace_exchange_waits(const lk_trace *trace, int d, const int64_t *marks, int n, double *seconds);

#endif
