#include "core/trace_summary.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/shape.h"
#include "core/text.h"
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

enum { PROBLEM_TEXT = 1024 };

typedef struct span {
    int64_t begin, end;
} span;

/* Intervals in the order of their beginnings, without overlaps. */
typedef struct span_list {
    span *spans;
    int64_t n;
} span_list;

/* --- events ------------------------------------------------------------------------------------------------------- */

/* A track's events, ordered by their ends: an event comes after those inside it. */
typedef struct event_list {
    const lk_trace_event **events;
    int64_t n;
} event_list;

static int64_t trace_summary_count_events(const lk_trace_track *track)
{
    int64_t n = 0;
    for (const lk_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        n += chunk->n;
    return n;
}

static lk_status trace_summary_list_events(const lk_trace_track *track, event_list *list)
{
    int64_t n = trace_summary_count_events(track);
    *list = (event_list){.events = lk__calloc((size_t)n, sizeof(lk_trace_event *))};
    if (!list->events)
        return LK_ERR_MEMORY;
    for (const lk_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->n; i++)
            if (chunk->events[i].kind != LK_TRACE_QUEUED)
                list->events[list->n++] = &chunk->events[i];
    return LK_OK;
}

/* Returns the nanoseconds of event i that no event inside it covers. */
static int64_t trace_summary_own_time(const event_list *list, int64_t i)
{
    const lk_trace_event *event = list->events[i];
    int64_t covered = 0, from = event->end;
    for (int64_t j = i - 1; j >= 0 && list->events[j]->begin >= event->begin; j--) {
        const lk_trace_event *inner = list->events[j];
        if (inner->end > from)
            continue; /* inside one that was counted */
        covered += inner->end - inner->begin;
        from = inner->begin;
    }
    return event->end - event->begin - covered;
}

/* --- what callers did --------------------------------------------------------------------------------------------- */

static bool trace_summary_is_input(const lk_trace_event *event)
{
    return event->kind == LK_TRACE_WAIT_BATCH || event->kind == LK_TRACE_PREPARE;
}

static bool trace_summary_is_result_wait(const lk_trace_event *event)
{
    return event->kind == LK_TRACE_WAIT_RESULT;
}

static int trace_summary_compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void trace_summary_merge_spans(span_list *list)
{
    int64_t kept = 0;
    qsort(list->spans, (size_t)list->n, sizeof *list->spans, trace_summary_compare_spans);
    for (int64_t i = 0; i < list->n; i++) {
        if (kept > 0 && list->spans[i].begin <= list->spans[kept - 1].end) {
            span *last = &list->spans[kept - 1];
            last->end = lk__max(last->end, list->spans[i].end);
        } else {
            list->spans[kept++] = list->spans[i];
        }
    }
    list->n = kept;
}

static void trace_summary_add_spans(const lk_trace_track *track, bool (*wanted)(const lk_trace_event *),
                                    span_list *list)
{
    for (const lk_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->n; i++)
            if (wanted(&chunk->events[i]))
                list->spans[list->n++] = (span){chunk->events[i].begin, chunk->events[i].end};
}

static lk_status trace_summary_callers_spans(const lk_trace *trace, bool (*wanted)(const lk_trace_event *),
                                             span_list *list)
{
    int64_t capacity = 0;
    for (const lk_trace_track *track = trace->tracks; track; track = track->next)
        capacity += track->kind == LK_TRACK_CALLER ? trace_summary_count_events(track) : 0;
    *list = (span_list){.spans = lk__calloc((size_t)capacity, sizeof(span))};
    if (!list->spans)
        return LK_ERR_MEMORY;
    for (const lk_trace_track *track = trace->tracks; track; track = track->next)
        if (track->kind == LK_TRACK_CALLER)
            trace_summary_add_spans(track, wanted, list);
    trace_summary_merge_spans(list);
    return LK_OK;
}

/* Returns the nanoseconds that the event shares with the list's spans. */
static int64_t trace_summary_overlap(const span_list *list, const lk_trace_event *event)
{
    int64_t low = 0, high = list->n, total = 0;
    while (low < high) { /* find the first span that ends after the event begins */
        int64_t middle = low + (high - low) / 2;
        if (list->spans[middle].end <= event->begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < list->n && list->spans[low].begin < event->end; low++) {
        int64_t begin = list->spans[low].begin, end = list->spans[low].end;
        total += lk__min(end, event->end) - lk__max(begin, event->begin);
    }
    return total;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

typedef struct callers {
    span_list input, results;
    bool several_devices;
} callers;

static void trace_summary_add_event(const callers *c, const lk_trace_event *event, int64_t nanoseconds,
                                    lk_trace_device *device)
{
    double *const of_phase[LK_PHASE_COUNT] = {&device->compute, &device->shard_sums, &device->exchange};
    double seconds = 1e-9 * (double)nanoseconds;
    if (event->kind == LK_TRACE_CALL || event->kind == LK_TRACE_PROGRAM)
        *of_phase[event->number] += seconds;
    else if (event->kind == LK_TRACE_WAIT_DEVICE)
        device->slowest += seconds;
    else if (event->kind == LK_TRACE_WAIT_EXCHANGE)
        device->exchange += seconds;
    if (event->kind != LK_TRACE_IDLE)
        return;
    device->input += 1e-9 * (double)trace_summary_overlap(&c->input, event);
    if (c->several_devices)
        device->slowest += 1e-9 * (double)trace_summary_overlap(&c->results, event);
}

static lk_status trace_summary_add_device(const lk_trace_track *track, const callers *c, lk_trace_summary *summary)
{
    lk_trace_device *device = &summary->devices[summary->n_devices];
    event_list list;
    device->name = lk__strdup(track->name);
    if (!device->name)
        return LK_ERR_MEMORY;
    summary->n_devices++;
    LK_TRY(trace_summary_list_events(track, &list));
    for (int64_t i = 0; i < list.n; i++)
        trace_summary_add_event(c, list.events[i], trace_summary_own_time(&list, i), device);
    lk__free(list.events);
    device->seconds = summary->seconds;
    device->other =
        device->seconds - device->compute - device->shard_sums - device->exchange - device->slowest - device->input;
    return LK_OK;
}

static lk_status trace_summary_add_devices(lk_trace_track *const *tracks, int n, const callers *c,
                                           lk_trace_summary *summary)
{
    summary->devices = lk__calloc((size_t)n, sizeof *summary->devices);
    if (!summary->devices)
        return LK_ERR_MEMORY;
    for (int t = 0; t < n; t++)
        if (tracks[t]->kind == LK_TRACK_DEVICE)
            LK_TRY(trace_summary_add_device(tracks[t], c, summary));
    return LK_OK;
}

static lk_status trace_summary_add_waiting(const lk_trace *trace, lk_trace_track *const *tracks, int n,
                                           lk_trace_summary *summary)
{
    int devices = 0;
    for (int t = 0; t < n; t++)
        devices += tracks[t]->kind == LK_TRACK_DEVICE;
    callers c = {.several_devices = devices > 1};
    lk_status status = trace_summary_callers_spans(trace, trace_summary_is_input, &c.input);
    if (status == LK_OK)
        status = trace_summary_callers_spans(trace, trace_summary_is_result_wait, &c.results);
    if (status == LK_OK)
        status = trace_summary_add_devices(tracks, n, &c, summary);
    lk__free(c.input.spans);
    lk__free(c.results.spans);
    return status;
}

/* --- the waits of one device, one by one -------------------------------------------------------------------------- */

/* Adds the event's time to seconds[i] for each interval i that the marks bound: see lk__trace_exchange_waits. */
static void trace_summary_add_wait(const lk_trace_event *event, const int64_t *marks, int n, double *seconds)
{
    int64_t from = event->begin;
    for (int i = 0; i <= n && from < event->end; i++) {
        int64_t to = i < n && marks[i] < event->end ? marks[i] : event->end;
        if (to <= from)
            continue;
        seconds[i] += 1e-9 * (double)(to - from);
        from = to;
    }
}

static const lk_trace_track *trace_summary_device_track(lk_trace_track *const *tracks, int n, int d)
{
    for (int t = 0; t < n; t++)
        if (tracks[t]->kind == LK_TRACK_DEVICE && d-- == 0)
            return tracks[t];
    return NULL;
}

lk_status lk__trace_exchange_waits(const lk_trace *trace, int d, const int64_t *marks, int n, double *seconds)
{
    lk_trace_track **tracks;
    int n_tracks;
    memset(seconds, 0, ((size_t)n + 1) * sizeof *seconds);
    LK_TRY(lk__trace_sorted_tracks(trace, &tracks, &n_tracks));
    const lk_trace_track *track = trace_summary_device_track(tracks, n_tracks, d);
    for (const lk_trace_chunk *chunk = track ? track->first : NULL; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->n; i++)
            if (chunk->events[i].kind == LK_TRACE_WAIT_EXCHANGE)
                trace_summary_add_wait(&chunk->events[i], marks, n, seconds);
    lk__free(tracks);
    return LK_OK;
}

/* --- operators ---------------------------------------------------------------------------------------------------- */

/* A text that does not fit is cut. */
static void trace_summary_describe_problem(const lk_trace_problem *problem, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < problem->n_in + problem->n_out; i++) {
        lk_dtype dtype;
        lk_shape dims;
        bool given = lk__problem_operand(problem, i, &dtype, &dims);
        if (i == problem->n_in)
            lk__text_append(text, size, i ? " -> " : "-> ");
        else if (i > 0)
            lk__text_append(text, size, " ");
        lk__text_append(text, size, given ? lk_dtype_name(dtype) : "none");
        if (given)
            lk__text_append(text, size, lk__text(dims).string);
    }
}

static double trace_summary_problem_bytes(const lk_trace_problem *problem)
{
    double written = 0, bytes = 0;
    for (int i = problem->n_in + problem->n_out - 1; i >= 0; i--) { /* outputs first */
        double elements = 1;
        lk_dtype dtype;
        lk_shape shape;
        if (!lk__problem_operand(problem, i, &dtype, &shape))
            continue;
        for (int d = 0; d < shape.ndim; d++)
            elements *= (double)shape.dim[d];
        if (i >= problem->n_in)
            written += elements;
        else if (i == 0 && (problem->op->flags & LK_OP_PICKS) && elements > written)
            elements = written;
        bytes += elements * (double)lk_dtype_size(dtype);
    }
    return bytes;
}

/* Adds up one track: a row for each of its problems in each phase. */
static lk_status trace_summary_add_rows(const lk_trace_track *track, lk_trace_operator *rows)
{
    event_list list;
    LK_TRY(trace_summary_list_events(track, &list));
    for (int64_t i = 0; i < list.n; i++) {
        const lk_trace_event *event = list.events[i];
        if (event->kind != LK_TRACE_CALL)
            continue;
        lk_trace_operator *row = &rows[event->problem->number * LK_PHASE_COUNT + (int)event->number];
        row->calls++;
        row->seconds += 1e-9 * (double)trace_summary_own_time(&list, i);
        row->flops += event->problem->flops;
        row->bytes += trace_summary_problem_bytes(event->problem);
    }
    lk__free(list.events);
    return LK_OK;
}

static lk_status trace_summary_name_rows(const lk_trace_track *track, lk_trace_operator *rows)
{
    char text[PROBLEM_TEXT];
    for (int b = 0; b < LK_TRACE_BUCKETS; b++) {
        for (const lk_trace_problem *problem = track->buckets[b]; problem; problem = problem->next) {
            trace_summary_describe_problem(problem, text, sizeof text);
            for (int phase = 0; phase < LK_PHASE_COUNT; phase++) {
                lk_trace_operator *row = &rows[problem->number * LK_PHASE_COUNT + phase];
                row->name = problem->op->name;
                row->category = lk__phase_category((lk_phase)phase);
                row->problem = row->calls > 0 ? lk__strdup(text) : NULL;
                if (row->calls > 0 && !row->problem)
                    return LK_ERR_MEMORY;
            }
        }
    }
    return LK_OK;
}

static int trace_summary_compare_problems(const lk_trace_operator *a, const lk_trace_operator *b)
{
    int order = strcmp(a->name, b->name);
    order = order ? order : strcmp(a->category, b->category);
    return order ? order : strcmp(a->problem, b->problem);
}

static int trace_summary_by_problem(const void *a, const void *b)
{
    return trace_summary_compare_problems(a, b);
}

static int trace_summary_by_time(const void *a, const void *b)
{
    const lk_trace_operator *x = a, *y = b;
    return x->seconds != y->seconds ? (x->seconds < y->seconds) - (x->seconds > y->seconds)
                                    : trace_summary_compare_problems(x, y);
}

static void trace_summary_drop_empty_rows(lk_trace_summary *summary)
{
    int kept = 0;
    for (int i = 0; i < summary->n_operators; i++)
        if (summary->operators[i].calls > 0)
            summary->operators[kept++] = summary->operators[i];
    summary->n_operators = kept;
}

static void trace_summary_merge_rows(lk_trace_summary *summary)
{
    int kept = 0;
    lk_trace_operator *rows = summary->operators;
    for (int i = 0; i < summary->n_operators; i++) {
        if (kept == 0 || trace_summary_compare_problems(&rows[kept - 1], &rows[i]) != 0) {
            rows[kept++] = rows[i];
            continue;
        }
        rows[kept - 1].calls += rows[i].calls;
        rows[kept - 1].seconds += rows[i].seconds;
        rows[kept - 1].flops += rows[i].flops;
        rows[kept - 1].bytes += rows[i].bytes;
        lk__free((void *)(uintptr_t)rows[i].problem);
    }
    summary->n_operators = kept;
}

static lk_status trace_summary_add_operators(lk_trace_track *const *tracks, int n, lk_trace_summary *summary)
{
    int capacity = 0, first = 0;
    for (int t = 0; t < n; t++)
        capacity += tracks[t]->n_problems * LK_PHASE_COUNT;
    summary->operators = lk__calloc((size_t)capacity, sizeof *summary->operators);
    if (!summary->operators)
        return LK_ERR_MEMORY;
    summary->n_operators = capacity;
    for (int t = 0; t < n; t++) {
        LK_TRY(trace_summary_add_rows(tracks[t], summary->operators + first));
        LK_TRY(trace_summary_name_rows(tracks[t], summary->operators + first));
        first += tracks[t]->n_problems * LK_PHASE_COUNT;
    }
    trace_summary_drop_empty_rows(summary);
    qsort(summary->operators, (size_t)summary->n_operators, sizeof *summary->operators, trace_summary_by_problem);
    trace_summary_merge_rows(summary);
    qsort(summary->operators, (size_t)summary->n_operators, sizeof *summary->operators, trace_summary_by_time);
    return LK_OK;
}

/* --- the whole summary -------------------------------------------------------------------------------------------- */

static lk_status trace_summary_fill(const lk_trace *trace, lk_trace_summary *summary)
{
    lk_trace_track **tracks;
    int n;
    LK_TRY(lk__trace_sorted_tracks(trace, &tracks, &n));
    summary->seconds = 1e-9 * (double)(trace->ended - trace->began);
    lk_status status = trace_summary_add_operators(tracks, n, summary);
    if (status == LK_OK)
        status = trace_summary_add_waiting(trace, tracks, n, summary);
    lk__free(tracks);
    return status;
}

lk_trace_summary *lk_trace_summarize(const lk_trace *trace)
{
    lk_trace_summary *summary = lk__calloc(1, sizeof *summary);
    if (!summary || trace_summary_fill(trace, summary) == LK_OK)
        return summary;
    lk_trace_summary_release(summary);
    return NULL;
}

void lk_trace_summary_release(lk_trace_summary *summary)
{
    if (!summary)
        return;
    for (int i = 0; i < summary->n_operators; i++)
        lk__free((void *)(uintptr_t)summary->operators[i].problem);
    for (int d = 0; d < summary->n_devices; d++)
        lk__free((void *)(uintptr_t)summary->devices[d].name);
    LK_FREE_ALL(summary->operators, summary->devices, summary);
}
