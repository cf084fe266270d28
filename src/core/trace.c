#include "core/trace.h"
#include "base/mem.h"
#include "base/status.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_EVENTS = 1 << 20,
    MAX_PROBLEMS = 1 << 16,
    MAX_WORDS = (LK_MAX_INPUTS + LK_MAX_OUTPUTS) * (1 + LK_MAX_DIMS)
};

/* A thread's recorder. Its track is handed over when recording stops or the thread ends. */
typedef struct thread_recorder {
    struct thread_recorder *next;
    pthread_mutex_t lock; /* guards the track; taken after registry_lock */
    lk_trace_track *track;
} thread_recorder;

_Atomic int64_t lk__trace_origin;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static thread_recorder *threads;
static lk_trace *recording; /* NULL: none */

static _Atomic int64_t chunks_left;
static _Atomic int64_t dropped_without_track;

static _Thread_local thread_recorder *own;
static _Thread_local lk_phase phase;
static _Thread_local lk_track_kind thread_kind = LK_TRACK_CALLER;
static _Thread_local char thread_name[LK_TRACE_NAME] = "caller";

lk_phase lk__phase_current(void)
{
    return phase;
}

lk_phase lk__phase_set(lk_phase now)
{
    lk_phase before = phase;
    phase = now;
    return before;
}

void lk__trace_name_thread(lk_track_kind kind, const char *name)
{
    thread_kind = kind;
    memset(thread_name, 0, sizeof thread_name);
    memccpy(thread_name, name, '\0', sizeof thread_name - 1);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Running out of memory for an event must not fail the work that is recorded, so the thread's error is cleared. */
static void *trace_calloc(size_t bytes)
{
    bool clean = lk_error_status() == LK_OK;
    void *memory = lk__calloc(1, bytes);
    if (!memory && clean)
        lk_error_clear();
    return memory;
}

static void trace_free_track(lk_trace_track *track)
{
    for (lk_trace_chunk *next, *chunk = track->first; chunk; chunk = next) {
        next = chunk->next;
        lk__free(chunk);
    }
    for (int b = 0; b < LK_TRACE_BUCKETS; b++) {
        for (lk_trace_problem *next, *problem = track->buckets[b]; problem; problem = next) {
            next = problem->next;
            lk__free(problem);
        }
    }
    lk__free(track);
}

/* The caller holds registry_lock. */
static void trace_hand_over(thread_recorder *thread)
{
    lk_trace_track *track = thread->track;
    thread->track = NULL;
    if (!track)
        return;
    track->next = recording->tracks;
    recording->tracks = track;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static pthread_key_t at_thread_exit;
static bool has_key;

static void trace_end_thread(void *argument)
{
    thread_recorder *thread = argument;
    pthread_mutex_lock(&registry_lock);
    thread_recorder **link = &threads;
    while (*link != thread)
        link = &(*link)->next;
    *link = thread->next;
    trace_hand_over(thread); /* there is a track only while something is recorded */
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_destroy(&thread->lock);
    lk__free(thread);
    own = NULL; /* a destructor of the program that runs later may record too */
}

static void trace_make_key(void)
{
    has_key = pthread_key_create(&at_thread_exit, trace_end_thread) == 0;
}

static thread_recorder *trace_own_recorder(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (own)
        return own;
    pthread_once(&once, trace_make_key);
    thread_recorder *thread = has_key ? trace_calloc(sizeof *thread) : NULL;
    if (!thread)
        return NULL;
    if (pthread_setspecific(at_thread_exit, thread) != 0) {
        lk__free(thread);
        return NULL;
    }
    pthread_mutex_init(&thread->lock, NULL);
    pthread_mutex_lock(&registry_lock);
    thread->next = threads;
    threads = thread;
    pthread_mutex_unlock(&registry_lock);
    own = thread;
    return thread;
}

static lk_trace_track *trace_own_track(thread_recorder *thread)
{
    if (thread->track)
        return thread->track;
    lk_trace_track *track = trace_calloc(sizeof *track);
    if (!track)
        return NULL;
    track->kind = thread_kind;
    memcpy(track->name, thread_name, sizeof track->name);
    thread->track = track;
    return track;
}

/* --- problems ----------------------------------------------------------------------------------------------------- */

static int trace_problem_put_operand(const lk_tensor *tensor, int64_t *words)
{
    if (!tensor) {
        words[0] = -1;
        return 1;
    }
    words[0] = (int64_t)tensor->dtype * (LK_MAX_DIMS + 1) + tensor->shape.ndim;
    for (int d = 0; d < tensor->shape.ndim; d++)
        words[1 + d] = tensor->shape.dim[d];
    return 1 + tensor->shape.ndim;
}

bool lk__problem_operand(const lk_trace_problem *problem, int i, lk_dtype *dtype, lk_shape *shape)
{
    const int64_t *words = problem->words;
    for (; i > 0; i--)
        words += words[0] < 0 ? 1 : 1 + words[0] % (LK_MAX_DIMS + 1);
    *shape = (lk_shape){0};
    if (words[0] < 0)
        return false;
    *dtype = (lk_dtype)(words[0] / (LK_MAX_DIMS + 1));
    shape->ndim = (int)(words[0] % (LK_MAX_DIMS + 1));
    memcpy(shape->dim, words + 1, (size_t)shape->ndim * sizeof *words);
    return true;
}

/* FNV-1a over words instead of bytes. */
static uint64_t trace_problem_hash(const lk_op *op, const int64_t *words, int n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uintptr_t)op;
    for (int i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)words[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

static bool trace_problem_is_same(const lk_trace_problem *problem, const lk_trace_problem *key, const int64_t *words)
{
    return problem->hash == key->hash && problem->op == key->op && problem->n_in == key->n_in &&
           problem->n_out == key->n_out && problem->n_words == key->n_words && problem->flops == key->flops &&
           memcmp(problem->words, words, (size_t)key->n_words * sizeof *words) == 0;
}

/* Returns the track's problem for the call; NULL: no memory, or too many problems. */
static const lk_trace_problem *trace_find_problem(lk_trace_track *track, const lk_call *call)
{
    int64_t words[MAX_WORDS];
    lk_trace_problem key = {.op = call->op, .n_in = call->n_in, .n_out = call->n_out};
    for (int i = 0; i < call->n_in; i++)
        key.n_words += trace_problem_put_operand(call->in[i], words + key.n_words);
    for (int i = 0; i < call->n_out; i++)
        key.n_words += trace_problem_put_operand(call->out[i], words + key.n_words);
    key.flops = call->op->flops ? call->op->flops(call) : 0;
    key.hash = trace_problem_hash(call->op, words, key.n_words);
    lk_trace_problem **bucket = &track->buckets[key.hash % LK_TRACE_BUCKETS];
    for (lk_trace_problem *problem = *bucket; problem; problem = problem->next)
        if (trace_problem_is_same(problem, &key, words))
            return problem;
    size_t bytes = (size_t)key.n_words * sizeof *words;
    lk_trace_problem *problem = track->n_problems < MAX_PROBLEMS ? trace_calloc(sizeof *problem + bytes) : NULL;
    if (!problem)
        return NULL;
    key.number = track->n_problems++;
    key.next = *bucket;
    memcpy(problem, &key, sizeof key);
    memcpy(problem->words, words, bytes);
    *bucket = problem;
    return problem;
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

static lk_trace_chunk *trace_chunk_with_space(lk_trace_track *track)
{
    if (track->last && track->last->n < LK_TRACE_CHUNK)
        return track->last;
    if (atomic_fetch_sub(&chunks_left, 1) <= 0) {
        atomic_fetch_add(&chunks_left, 1);
        return NULL;
    }
    lk_trace_chunk *chunk = trace_calloc(sizeof *chunk);
    if (!chunk)
        return NULL;
    if (track->last)
        track->last->next = chunk;
    else
        track->first = chunk;
    track->last = chunk;
    return chunk;
}

static bool trace_add_event(lk_trace_track *track, const lk_trace_event *event, const lk_call *call)
{
    const lk_trace_problem *problem = event->problem;
    lk_trace_chunk *chunk = trace_chunk_with_space(track);
    if (!chunk)
        return false;
    if (call) {
        problem = trace_find_problem(track, call);
        if (!problem)
            return false;
    }
    chunk->events[chunk->n] = *event;
    chunk->events[chunk->n++].problem = problem;
    return true;
}

/* The caller holds the thread's lock. */
static void trace_record_locked(thread_recorder *thread, int64_t origin, lk_trace_event event, const lk_call *call)
{
    event.begin = event.begin < origin ? origin : event.begin;
    event.end = event.end < event.begin ? event.begin : event.end;
    lk_trace_track *track = trace_own_track(thread);
    if (!track)
        atomic_fetch_add(&dropped_without_track, 1);
    else if (!trace_add_event(track, &event, call))
        track->dropped++;
}

/* The origin is read under the thread's lock: lk_trace_stop first clears it and then takes the track under that
 * lock. */
static void trace_record(lk_trace_event event, const lk_call *call)
{
    thread_recorder *thread = trace_own_recorder();
    if (!thread) {
        atomic_fetch_add(&dropped_without_track, 1);
        return;
    }
    pthread_mutex_lock(&thread->lock);
    int64_t origin = atomic_load(&lk__trace_origin);
    if (origin)
        trace_record_locked(thread, origin, event, call);
    pthread_mutex_unlock(&thread->lock);
}

void lk__trace_end(lk_trace_kind kind, int64_t began, int64_t number)
{
    if (lk__trace_is_on())
        lk__trace_interval(kind, began, lk__nanoseconds(), number);
}

void lk__trace_interval(lk_trace_kind kind, int64_t began, int64_t ended, int64_t number)
{
    trace_record((lk_trace_event){.begin = began, .end = ended, .number = (uint32_t)number, .kind = kind}, NULL);
}

void lk__trace_end_call(const lk_call *call, int64_t began)
{
    trace_record((lk_trace_event){.begin = began, .end = lk__nanoseconds(), .number = phase, .kind = LK_TRACE_CALL},
                 call);
}

lk_trace_noted lk__trace_note_call(const lk_call *call)
{
    lk_trace_noted noted = {.number = phase};
    thread_recorder *thread = trace_own_recorder();
    if (!thread) {
        atomic_fetch_add(&dropped_without_track, 1);
        return noted;
    }
    pthread_mutex_lock(&thread->lock);
    noted.origin = atomic_load(&lk__trace_origin);
    lk_trace_track *track = noted.origin ? trace_own_track(thread) : NULL;
    noted.problem = track ? trace_find_problem(track, call) : NULL;
    pthread_mutex_unlock(&thread->lock);
    return noted;
}

/* Drops the call if its recording has ended: the track to which its problem belongs is gone then. */
void lk__trace_add_call(const lk_trace_noted *noted, int64_t began, int64_t ended)
{
    lk_trace_event event = {
        .begin = began, .end = ended, .problem = noted->problem, .number = noted->number, .kind = LK_TRACE_CALL};
    if (!noted->origin)
        return;
    pthread_mutex_lock(&own->lock);
    bool is_on = atomic_load(&lk__trace_origin) == noted->origin;
    if (is_on && noted->problem)
        trace_record_locked(own, noted->origin, event, NULL);
    else if (is_on)
        atomic_fetch_add(&dropped_without_track, 1);
    pthread_mutex_unlock(&own->lock);
}

/* --- start and stop ----------------------------------------------------------------------------------------------- */

lk_status lk_trace_start(const lk_trace_opts *opts)
{
    int64_t events = opts && opts->max_events ? opts->max_events : DEFAULT_EVENTS;
    if (events < 0 || events > INT64_MAX - LK_TRACE_CHUNK)
        LK_FAIL(LK_ERR_ARGUMENT, "trace: room for %lld events: must be at least 0", (long long)events);
    lk_trace *trace = lk__calloc(1, sizeof *trace);
    if (!trace)
        return LK_ERR_MEMORY;
    pthread_mutex_lock(&registry_lock);
    bool is_recording = recording;
    if (!is_recording) {
        atomic_store(&chunks_left, (events + LK_TRACE_CHUNK - 1) / LK_TRACE_CHUNK);
        atomic_store(&dropped_without_track, 0);
        recording = trace;
        trace->began = lk__nanoseconds();
        atomic_store(&lk__trace_origin, trace->began);
    }
    pthread_mutex_unlock(&registry_lock);
    if (!is_recording)
        return LK_OK;
    lk__free(trace);
    LK_FAIL(LK_ERR_STATE, "trace: something is being recorded already; lk_trace_stop ends that");
}

lk_trace *lk_trace_stop(void)
{
    pthread_mutex_lock(&registry_lock);
    lk_trace *trace = recording;
    atomic_store(&lk__trace_origin, 0);
    for (thread_recorder *thread = trace ? threads : NULL; thread; thread = thread->next) {
        pthread_mutex_lock(&thread->lock);
        trace_hand_over(thread);
        pthread_mutex_unlock(&thread->lock);
    }
    recording = NULL;
    if (trace) {
        trace->ended = lk__nanoseconds();
        trace->dropped = atomic_load(&dropped_without_track);
    }
    pthread_mutex_unlock(&registry_lock);
    if (!trace)
        lk__fail(LK_ERR_STATE, "trace: nothing is being recorded; lk_trace_start begins that");
    return trace;
}

void lk_trace_release(lk_trace *trace)
{
    if (!trace)
        return;
    for (lk_trace_track *next, *track = trace->tracks; track; track = next) {
        next = track->next;
        trace_free_track(track);
    }
    lk__free(trace);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

int64_t lk_trace_dropped(const lk_trace *trace)
{
    int64_t dropped = trace->dropped;
    for (const lk_trace_track *track = trace->tracks; track; track = track->next)
        dropped += track->dropped;
    return dropped;
}

static const struct {
    const char *name, *category;
} kinds[LK_TRACE_KIND_COUNT] = {
    [LK_TRACE_PROGRAM] = {"program", "program"},
    [LK_TRACE_WAIT_DEVICE] = {"wait for a device", "wait"},
    [LK_TRACE_WAIT_EXCHANGE] = {"wait for the exchange", "wait"},
    [LK_TRACE_WAIT_CORE] = {"wait for a core", "wait"},
    [LK_TRACE_IDLE] = {"no work", "wait"},
    [LK_TRACE_QUEUED] = {"queued", "queue"},
    [LK_TRACE_WAIT_RESULT] = {"wait for results", "wait"},
    [LK_TRACE_WAIT_ENTRY] = {"wait for room in a queue", "wait"},
    [LK_TRACE_WAIT_BATCH] = {"wait for a batch", "input"},
    [LK_TRACE_PREPARE] = {"prepare a batch", "loader"},
    [LK_TRACE_PUSH_STEP] = {"push a step", "host"},
};

const char *lk__phase_category(lk_phase of)
{
    static const char *const categories[LK_PHASE_COUNT] = {"operator", "shard sum", "exchange"};
    return categories[of];
}

const char *lk__trace_event_name(const lk_trace_event *event)
{
    return event->problem ? event->problem->op->name : kinds[event->kind].name;
}

const char *lk__trace_event_category(const lk_trace_event *event)
{
    return event->problem ? lk__phase_category((lk_phase)event->number) : kinds[event->kind].category;
}

static int trace_compare_tracks(const void *a, const void *b)
{
    const lk_trace_track *x = *(lk_trace_track *const *)a, *y = *(lk_trace_track *const *)b;
    return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind) : strverscmp(x->name, y->name);
}

lk_status lk__trace_sorted_tracks(const lk_trace *trace, lk_trace_track ***tracks, int *count)
{
    *count = 0;
    for (lk_trace_track *track = trace->tracks; track; track = track->next)
        ++*count;
    *tracks = lk__calloc((size_t)*count, sizeof(lk_trace_track *));
    if (!*tracks)
        return LK_ERR_MEMORY;
    int n = 0;
    for (lk_trace_track *track = trace->tracks; track; track = track->next)
        (*tracks)[n++] = track;
    qsort(*tracks, (size_t)n, sizeof(lk_trace_track *), trace_compare_tracks);
    return LK_OK;
}
