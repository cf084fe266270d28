/* lk_trace_write: writes a recording in Chrome's "Trace Event Format", as a JSON object.
 *
 * The JSON that all events of an operator share, shapes included, is rendered once for each problem of a track. */
#include "base/mem.h"
#include "base/status.h"
#include "core/shape.h"
#include "core/trace.h"
#include "io/append_file.h"
#include "io/durable.h"
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
    lk_append_file file;
    lk_bytes bytes;   /* not written yet */
    lk_bytes *common; /* [problem * LK_PHASE_COUNT + phase] of the current track: the end of an event's object */
    int64_t origin;
} trace_file;

/* --- parts -------------------------------------------------------------------------------------------------------- */

static void trace_file_put_operands(lk_bytes *out, const lk_trace_problem *problem, const char *name, int first, int n)
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

static void trace_file_put_names(lk_bytes *out, const lk_trace_event *event)
{
    lk__json_field(out, LK_TEXT("name", lk__trace_event_name(event)));
    lk__json_field(out, LK_TEXT("cat", lk__trace_event_category(event)));
}

/* Returns the end of a call's object: "name":…,"args":{…}}. */
static const lk_bytes *trace_file_common_json(const trace_file *f, const lk_trace_event *event)
{
    const lk_trace_problem *problem = event->problem;
    lk_bytes *out = &f->common[problem->number * LK_PHASE_COUNT + (int)event->number];
    if (out->size > 0)
        return out;
    trace_file_put_names(out, event);
    lk__json_open(out, "args", '{');
    trace_file_put_operands(out, problem, "inputs", 0, problem->n_in);
    trace_file_put_operands(out, problem, "outputs", problem->n_in, problem->n_out);
    if (problem->flops > 0)
        lk__json_field(out, LK_REAL("flops", problem->flops));
    lk__json_close(out, '}');
    lk__json_close(out, '}');
    return out;
}

/* Writes microseconds with three decimals. */
static void trace_file_put_time(lk_bytes *out, const char *name, int64_t nanoseconds)
{
    lk__bytes_format(out, ",\"%s\":%lld.%03d", name, (long long)(nanoseconds / 1000), (int)(nanoseconds % 1000));
}

static void trace_file_open_event(trace_file *f, const char *phase, int thread)
{
    lk__json_open(&f->bytes, NULL, '{');
    lk__bytes_format(&f->bytes, "\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", phase, PROCESS, thread);
}

/* Ends an event with one argument. */
static void trace_file_close_event(trace_file *f, lk_field argument)
{
    lk__json_open(&f->bytes, "args", '{');
    lk__json_field(&f->bytes, argument);
    lk__json_close(&f->bytes, '}');
    lk__json_close(&f->bytes, '}');
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void trace_file_put_event(trace_file *f, const lk_trace_event *event, int thread)
{
    trace_file_open_event(f, "X", thread);
    trace_file_put_time(&f->bytes, "ts", event->begin - f->origin);
    trace_file_put_time(&f->bytes, "dur", event->end - event->begin);
    if (event->problem) {
        const lk_bytes *common = trace_file_common_json(f, event);
        f->bytes.failed |= common->failed;
        lk__bytes_char(&f->bytes, ',');
        lk__bytes_put(&f->bytes, common->data, common->size);
        return;
    }
    trace_file_put_names(&f->bytes, event);
    if (event->kind == LK_TRACE_PREPARE || event->kind == LK_TRACE_PUSH_STEP)
        trace_file_close_event(f, LK_INT("batch", event->number));
    else
        lk__json_close(&f->bytes, '}');
}

/* A viewer draws all counters of one name as one row, whatever their thread. */
static void trace_file_put_counter(trace_file *f, const lk_trace_track *track, const lk_trace_event *event, int thread)
{
    char name[LK_TRACE_NAME + 16];
    snprintf(name, sizeof name, "queued on %s", track->name);
    trace_file_open_event(f, "C", thread);
    trace_file_put_time(&f->bytes, "ts", event->end - f->origin);
    lk__json_field(&f->bytes, LK_TEXT("name", name));
    trace_file_close_event(f, LK_INT("calls", event->number));
}

static void trace_file_put_metadata(trace_file *f, int thread, const char *what, lk_field value)
{
    trace_file_open_event(f, "M", thread);
    lk__json_field(&f->bytes, LK_TEXT("name", what));
    trace_file_close_event(f, value);
}

/* Writes all but the last character, which lk__json_open looks at to decide whether a comma is needed. */
static lk_status trace_file_flush(trace_file *f)
{
    LK_TRY(lk__bytes_status(&f->bytes));
    if (f->bytes.size < WRITE_BYTES)
        return LK_OK;
    LK_TRY(lk__append(&f->file, f->bytes.data, f->bytes.size - 1));
    f->bytes.data[0] = f->bytes.data[f->bytes.size - 1];
    f->bytes.size = 1;
    return LK_OK;
}

static lk_status trace_file_put_events(trace_file *f, const lk_trace_track *track, int thread)
{
    for (const lk_trace_chunk *chunk = track->first; chunk; chunk = chunk->next) {
        for (int i = 0; i < chunk->n; i++) {
            if (chunk->events[i].kind == LK_TRACE_QUEUED)
                trace_file_put_counter(f, track, &chunk->events[i], thread);
            else
                trace_file_put_event(f, &chunk->events[i], thread);
        }
        LK_TRY(trace_file_flush(f));
    }
    return LK_OK;
}

static lk_status trace_file_put_track(trace_file *f, const lk_trace_track *track, int thread)
{
    size_t n = (size_t)track->n_problems * LK_PHASE_COUNT;
    f->common = lk__calloc(n, sizeof *f->common);
    if (!f->common)
        return LK_ERR_MEMORY;
    trace_file_put_metadata(f, thread, "thread_name", LK_TEXT("name", track->name));
    trace_file_put_metadata(f, thread, "thread_sort_index", LK_INT("sort_index", thread));
    lk_status status = trace_file_put_events(f, track, thread);
    for (size_t i = 0; i < n; i++)
        lk__bytes_free(&f->common[i]);
    lk__free(f->common);
    return status;
}

static lk_status trace_file_put_tracks(trace_file *f, const lk_trace *trace)
{
    lk_trace_track **tracks;
    int n;
    LK_TRY(lk__trace_sorted_tracks(trace, &tracks, &n));
    lk_status status = LK_OK;
    for (int t = 0; t < n && status == LK_OK; t++)
        status = trace_file_put_track(f, tracks[t], t + 1);
    lk__free(tracks);
    return status;
}

static lk_status trace_file_put_trace(trace_file *f, const lk_trace *trace)
{
    lk__json_open(&f->bytes, NULL, '{');
    lk__json_field(&f->bytes, LK_TEXT("displayTimeUnit", "ms"));
    lk__json_open(&f->bytes, "otherData", '{');
    lk__json_field(&f->bytes, LK_INT("dropped_events", trace ? lk_trace_dropped(trace) : 0));
    lk__json_close(&f->bytes, '}');
    lk__json_open(&f->bytes, "traceEvents", '[');
    trace_file_put_metadata(f, 0, "process_name", LK_TEXT("name", "lockstep"));
    if (trace)
        LK_TRY(trace_file_put_tracks(f, trace));
    lk__json_close(&f->bytes, ']');
    lk__json_close(&f->bytes, '}');
    lk__bytes_char(&f->bytes, '\n');
    LK_TRY(lk__bytes_status(&f->bytes));
    return lk__append(&f->file, f->bytes.data, f->bytes.size);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* Writes to `file`; `path` is for messages. */
static lk_status trace_file_write(const char *file, const char *path, const lk_trace *trace)
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
    status = trace_file_put_trace(&f, trace);
    lk__bytes_free(&f.bytes);
    lk__append_close(&f.file);
    return status;
}

lk_status lk_trace_write(const lk_trace *trace, const char *path)
{
    char target[PATH_MAX], temporary[PATH_MAX];
    struct stat about;
    if (!path || !*path)
        LK_FAIL(LK_ERR_IO, "trace: a file without a name cannot be written");
    bool exists = stat(path, &about) == 0;
    if (exists && S_ISFIFO(about.st_mode) && !trace)
        return LK_OK; /* its reader would take the empty recording for the whole */
    if (exists && !S_ISREG(about.st_mode))
        return trace_file_write(path, path, trace); /* a pipe or a terminal cannot be replaced */
    LK_TRY(lk__durable_target(path, target));
    if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", target, (long)getpid()) >= (int)sizeof temporary)
        LK_FAIL(LK_ERR_IO, "trace: the file's path has more than %d bytes: %.60s…", PATH_MAX - 20, path);
    lk_status status = trace_file_write(temporary, path, trace);
    lk__keep_mode(temporary, target);
    if (status == LK_OK && rename(temporary, target) != 0)
        status = lk__fail(LK_ERR_IO, "trace %s: cannot be written: %s", path, strerror(errno));
    if (status != LK_OK)
        unlink(temporary);
    return status;
}
