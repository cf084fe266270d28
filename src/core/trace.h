/* The recorder behind lockstep/trace.h: what ran when, on which thread.
 *
 * Each thread that records has its own track, made with its first event, whose lock only lk_trace_stop contends for. An
 * event is 32 bytes: no text is made while recording, and the shapes of a call are stored once for each combination
 * that the thread meets. Memory is allocated after the interval that an event describes has ended. */
#pragma once

#include "base/clock.h"
#include "core/op.h"
#include "lockstep/trace.h"

#include <stdatomic.h>

/* The purpose of an operator call. The thread that pushes sets it; the queue's entry hands it on to the thread that
 * runs the call. */
typedef enum lk_phase { LK_PHASE_COMPUTE, LK_PHASE_SHARD_SUM, LK_PHASE_EXCHANGE, LK_PHASE_COUNT } lk_phase;

lk_phase lk__phase_current(void);

/* Returns the previous phase. */
lk_phase lk__phase_set(lk_phase phase);

typedef enum lk_trace_kind {
    LK_TRACE_CALL,          /* number: its phase */
    LK_TRACE_PROGRAM,       /* a task with its calls. number: its phase */
    LK_TRACE_WAIT_DEVICE,   /* a queue waits for another one to compute, or to begin an exchange */
    LK_TRACE_WAIT_EXCHANGE, /* a queue waits for another one that is in phase exchange */
    LK_TRACE_WAIT_CORE,     /* what a queue waited for is done, but its thread was not woken yet */
    LK_TRACE_IDLE,          /* a queue has nothing to run */
    LK_TRACE_QUEUED,        /* no interval. number: entries in the queue */
    LK_TRACE_WAIT_RESULT,   /* a caller waits for a device */
    LK_TRACE_WAIT_ENTRY,    /* a caller waits for a free entry of a queue */
    LK_TRACE_WAIT_BATCH,    /* a caller waits for a loader's workers */
    LK_TRACE_PREPARE,       /* number: the batch */
    LK_TRACE_PUSH_STEP,     /* number: the batch */
    LK_TRACE_KIND_COUNT
} lk_trace_kind;

/* An operator with the dtypes and shapes of its operands. The words are read with lk__problem_operand. */
typedef struct lk_trace_problem {
    struct lk_trace_problem *next; /* of the same bucket */
    const lk_op *op;
    double flops; /* of a call */
    int number;   /* in the track, from 0 */
    int n_in, n_out;
    int n_words;
    uint64_t hash;
    int64_t words[];
} lk_trace_problem;

typedef struct lk_trace_event {
    int64_t begin, end;              /* CLOCK_MONOTONIC, nanoseconds */
    const lk_trace_problem *problem; /* of LK_TRACE_CALL */
    uint32_t number;
    uint32_t kind; /* lk_trace_kind */
} lk_trace_event;

enum { LK_TRACE_CHUNK = 4096, LK_TRACE_BUCKETS = 256, LK_TRACE_NAME = 24 };

typedef struct lk_trace_chunk {
    struct lk_trace_chunk *next;
    int n;
    lk_trace_event events[LK_TRACE_CHUNK];
} lk_trace_chunk;

typedef enum lk_track_kind { LK_TRACK_DEVICE, LK_TRACK_LINKS, LK_TRACK_CALLER, LK_TRACK_LOADER } lk_track_kind;

/* The record of one thread. Events are ordered by their ends; two of them nest or do not overlap. */
typedef struct lk_trace_track {
    struct lk_trace_track *next;
    lk_track_kind kind;
    char name[LK_TRACE_NAME];
    lk_trace_chunk *first, *last;
    lk_trace_problem *buckets[LK_TRACE_BUCKETS];
    int n_problems;
    int64_t dropped;
} lk_trace_track;

struct lk_trace {
    int64_t began, ended;
    lk_trace_track *tracks;
    int64_t dropped; /* events of threads that had no memory for a track */
};

/* --- recording ---------------------------------------------------------------------------------------------------- */

/* The time at which recording began; 0: nothing is recorded. */
extern _Atomic int64_t lk__trace_origin;

static inline bool lk__trace_is_on(void)
{
    return atomic_load_explicit(&lk__trace_origin, memory_order_relaxed) != 0;
}

/* Returns the present time, to begin an interval with; 0 if nothing is recorded. */
static inline int64_t lk__trace_begin(void)
{
    return lk__trace_is_on() ? lk__nanoseconds() : 0;
}

/* Records the interval from `began` until now. If it began before the recording, it is cut there. */
void lk__trace_end(lk_trace_kind kind, int64_t began, int64_t number);

/* Records a call that has run since `began`, in the thread's phase. */
void lk__trace_end_call(const lk_call *call, int64_t began);

/* A call in the thread's phase whose times are not known yet. It belongs to the present recording only. */
typedef struct lk_trace_noted {
    int64_t origin;                  /* 0: nothing was recorded */
    const lk_trace_problem *problem; /* NULL: no memory */
    uint32_t number;
} lk_trace_noted;

lk_trace_noted lk__trace_note_call(const lk_call *call);

/* Records the noted call. On the thread that noted it. */
void lk__trace_add_call(const lk_trace_noted *noted, int64_t began, int64_t ended);

/* Records the interval from `began` until `ended`, cut at the beginning of the recording. */
void lk__trace_interval(lk_trace_kind kind, int64_t began, int64_t ended, int64_t number);

/* Names the calling thread in recordings; without, it is a caller. The name is copied and cut to LK_TRACE_NAME - 1
 * bytes. */
void lk__trace_name_thread(lk_track_kind kind, const char *name);

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Name and category of an event: for a call "conv2d" and the category of its phase, for others those of the kind.
 * Static. */
const char *lk__trace_event_name(const lk_trace_event *event);
const char *lk__trace_event_category(const lk_trace_event *event);
const char *lk__phase_category(lk_phase phase);

/* Gets operand i of the problem, outputs after inputs. False: it is optional and was not given. */
bool lk__problem_operand(const lk_trace_problem *problem, int i, lk_dtype *dtype, lk_shape *shape);

/* Lists the tracks in display order: by kind, then by name, with numbers in names compared as numbers. The caller frees
 * the array. Errors: LK_ERR_MEMORY. */
lk_status lk__trace_sorted_tracks(const lk_trace *trace, lk_trace_track ***tracks, int *count);
