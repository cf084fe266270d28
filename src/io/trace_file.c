/* lk_trace_write: a recording in Chrome's trace event format ("Trace Event Format", JSON object form).
 *
 * What an operator's events have in common, shapes included, is rendered once for each problem of a track. */
#include "core/trace.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "io/append_file.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROCESS = 1, WRITE_BYTES = 1 << 20 };

typedef struct trace_file {
    lk__append_file file;
    lk__bytes bytes;   /* not written yet */
    lk__bytes *common; /* [problem * LK_PHASE_COUNT + phase] of the track at hand: the end of an event's object */
    int64_t origin;
} trace_file;

/* --- parts -------------------------------------------------------------------------------------------------------- */

static void put_operands(lk__bytes *out, const lk__trace_problem *problem, const char *name, int first, int n)
{
    lk__json_open(out, name, '[');
    for (int i = first; i < first + n; i++) {
        char text[160], shape[128];
        lk_dtype dtype;
        lk_shape dims;
        if (lk__problem_operand(problem, i, &dtype, &dims)) {
            lk__shape_text(dims, shape, sizeof shape);
            snprintf(text, sizeof text, "%s%s", lk_dtype_name(dtype), shape);
            lk__json_field(out, LK_TEXT(NULL, text));
        } else {
            lk__json_field(out, LK_NONE(NULL));
        }
    }
    lk__json_close(out, ']');
}

static void put_names(lk__bytes *out, const lk__trace_event *event)
{
    lk__json_field(out, LK_TEXT("name", lk__trace_event_name(event)));
    lk__json_field(out, LK_TEXT("cat", lk__trace_event_category(event)));
}

/* "name":…,"args":{…}} of a call. */
static const lk__bytes *common_of(const trace_file *f, const lk__trace_event *event)
{
    const lk__trace_problem *problem = event->problem;
    lk__bytes *out = &f->common[problem->number * LK_PHASE_COUNT + (int)event->number];
    if (out->size > 0)
        return out;
    put_names(out, event);
    lk__json_open(out, "args", '{');
    put_operands(out, problem, "inputs", 0, problem->n_in);
    put_operands(out, problem, "outputs", problem->n_in, problem->n_out);
    if (problem->flops > 0)
        lk__json_field(out, LK_REAL("flops", problem->flops));
    lk__json_close(out, '}');
    lk__json_close(out, '}');
    return out;
}

/* Microseconds with three digits behind the point. */
static void put_time(lk__bytes *out, const char *name, int64_t nanoseconds)
{
    lk__bytes_format(out, ",\"%s\":%lld.%03d", name, (long long)(nanoseconds / 1000), (int)(nanoseconds % 1000));
}

static void open_event(trace_file *f, const char *phase, int thread)
{
    lk__json_open(&f->bytes, NULL, '{');
    lk__bytes_format(&f->bytes, "\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", phase, PROCESS, thread);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void put_call(trace_file *f, const lk__trace_event *event)
{
    const lk__bytes *common = common_of(f, event);
    f->bytes.failed |= common->failed;
    lk__bytes_char(&f->bytes, ',');
    lk__bytes_put(&f->bytes, common->data, common->size);
}

static void put_rest(trace_file *f, const lk__trace_event *event)
{
    put_names(&f->bytes, event);
    if (event->kind == LK_TRACE_PREPARE || event->kind == LK_TRACE_PUSH_STEP) {
        lk__json_open(&f->bytes, "args", '{');
        lk__json_field(&f->bytes, LK_INT("batch", event->number));
        lk__json_close(&f->bytes, '}');
    }
    lk__json_close(&f->bytes, '}');
}

static void put_event(trace_file *f, const lk__trace_event *event, int thread)
{
    open_event(f, "X", thread);
    put_time(&f->bytes, "ts", event->begin - f->origin);
    put_time(&f->bytes, "dur", event->end - event->begin);
    if (event->problem)
        put_call(f, event);
    else
        put_rest(f, event);
}

/* Counters of one name are one row, whichever thread they are of. */
static void put_counter(trace_file *f, const lk__trace_track *track, const lk__trace_event *event, int thread)
{
    char name[LK_TRACE_NAME + 16];
    snprintf(name, sizeof name, "queued on %s", track->name);
    open_event(f, "C", thread);
    put_time(&f->bytes, "ts", event->end - f->origin);
    lk__json_field(&f->bytes, LK_TEXT("name", name));
    lk__json_open(&f->bytes, "args", '{');
    lk__json_field(&f->bytes, LK_INT("calls", event->number));
    lk__json_close(&f->bytes, '}');
    lk__json_close(&f->bytes, '}');
}

static void put_metadata(trace_file *f, int thread, const char *what, lk_field value)
{
    open_event(f, "M", thread);
    lk__json_field(&f->bytes, LK_TEXT("name", what));
    lk__json_open(&f->bytes, "args", '{');
    lk__json_field(&f->bytes, value);
    lk__json_close(&f->bytes, '}');
    lk__json_close(&f->bytes, '}');
}

/* All but the last character, which tells what is added next that a comma goes before it. */
static lk_status flush(trace_file *f)
{
    LK_TRY(lk__bytes_status(&f->bytes));
    if (f->bytes.size < WRITE_BYTES)
        return LK_OK;
    LK_TRY(lk__append(&f->file, f->bytes.data, f->bytes.size - 1));
    f->bytes.data[0] = f->bytes.data[f->bytes.size - 1];
    f->bytes.size = 1;
    return LK_OK;
}

static lk_status put_events(trace_file *f, const lk__trace_track *track, int thread)
{
    for (const lk__trace_chunk *chunk = track->first; chunk; chunk = chunk->next) {
        for (int i = 0; i < chunk->n; i++) {
            if (chunk->events[i].kind == LK_TRACE_QUEUED)
                put_counter(f, track, &chunk->events[i], thread);
            else
                put_event(f, &chunk->events[i], thread);
        }
        LK_TRY(flush(f));
    }
    return LK_OK;
}

static lk_status put_track(trace_file *f, const lk__trace_track *track, int thread)
{
    size_t n = (size_t)track->n_problems * LK_PHASE_COUNT;
    f->common = lk__calloc(n, sizeof *f->common);
    if (!f->common)
        return LK_ERR_MEMORY;
    put_metadata(f, thread, "thread_name", LK_TEXT("name", track->name));
    put_metadata(f, thread, "thread_sort_index", LK_INT("sort_index", thread));
    lk_status status = put_events(f, track, thread);
    for (size_t i = 0; i < n; i++)
        lk__bytes_free(&f->common[i]);
    lk__free(f->common);
    return status;
}

static lk_status put_tracks(trace_file *f, const lk_trace *trace)
{
    lk__trace_track **tracks;
    int n;
    LK_TRY(lk__trace_sorted_tracks(trace, &tracks, &n));
    lk_status status = LK_OK;
    for (int t = 0; t < n && status == LK_OK; t++)
        status = put_track(f, tracks[t], t + 1);
    lk__free(tracks);
    return status;
}

static lk_status put_trace(trace_file *f, const lk_trace *trace)
{
    lk__json_open(&f->bytes, NULL, '{');
    lk__json_field(&f->bytes, LK_TEXT("displayTimeUnit", "ms"));
    lk__json_open(&f->bytes, "otherData", '{');
    lk__json_field(&f->bytes, LK_INT("dropped_events", trace ? lk_trace_dropped(trace) : 0));
    lk__json_close(&f->bytes, '}');
    lk__json_open(&f->bytes, "traceEvents", '[');
    put_metadata(f, 0, "process_name", LK_TEXT("name", "lockstep"));
    if (trace)
        LK_TRY(put_tracks(f, trace));
    lk__json_close(&f->bytes, ']');
    lk__json_close(&f->bytes, '}');
    lk__bytes_char(&f->bytes, '\n');
    LK_TRY(lk__bytes_status(&f->bytes));
    return lk__append(&f->file, f->bytes.data, f->bytes.size);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* Into `file`, which becomes `path`. */
static lk_status write_to(const char *file, const char *path, const lk_trace *trace)
{
    trace_file f = {.origin = trace ? trace->began : 0};
    lk_status status = lk__append_open(&f.file, file, O_TRUNC);
    if (status == LK_ERR_IO) {
        int error = errno;
        lk_error_clear();
        LK_FAIL(LK_ERR_IO, "trace %s: cannot be written: %s", path, strerror(error));
    }
    if (status != LK_OK)
        return status;
    status = put_trace(&f, trace);
    lk__bytes_free(&f.bytes);
    lk__append_close(&f.file);
    return status;
}

lk_status lk_trace_write(const lk_trace *trace, const char *path)
{
    char beside[PATH_MAX];
    struct stat there;
    if (!path || !*path)
        LK_FAIL(LK_ERR_IO, "trace: a file without a name cannot be written");
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return write_to(path, path, trace); /* a pipe or a terminal: nothing to be replaced */
    if (snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof beside)
        LK_FAIL(LK_ERR_IO, "trace: the file's path has more than %d bytes: %.60s…", PATH_MAX - 20, path);
    lk_status status = write_to(beside, path, trace);
    if (status == LK_OK && rename(beside, path) != 0)
        status = lk__fail(LK_ERR_IO, "trace %s: cannot be written: %s", path, strerror(errno));
    if (status != LK_OK)
        unlink(beside);
    return status;
}
