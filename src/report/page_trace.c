/* Draws a step of a recording (lk_trace_write): a row for each device and thread, a bar for each event. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "report/page_html.h"
#include "report/page_parts.h"
#include "report/record_file.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 24, MOST_BARS = 3000 };
enum { WIDTH = 1000, ROW = 26, BAR = 20 };

/* Categories of lk_trace_write, in the order in which bars are drawn; waits are left white. */
static const struct {
    const char *category, *class, *shown;
} kinds[] = {{"program", "k-compute", NULL},
             {"operator", "k-compute", "compute"},
             {"shard sum", "k-sum", "sum over shards"},
             {"exchange", "k-exchange", "exchange"},
             {"loader", "k-input", NULL},
             {"input", "k-input", "input"},
             {"host", "k-host", "host"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* An event of the step. */
typedef struct bar {
    const char *name;
    double begin, length; /* in microseconds */
    int row, kind;
} bar;

typedef struct timeline {
    const json_t *events;
    double begin, end; /* of the step, in microseconds */
    bar *bars;
    int64_t n_bars, capacity;
    struct {
        json_int_t thread;
        const char *name;
    } rows[MOST_ROWS];
    int n_rows, further_rows; /* those have no place */
} timeline;

static double page_trace_number(const json_t *event, const char *name)
{
    const json_t *value = json_object_get(event, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool page_trace_is(const json_t *event, const char *member, const char *text)
{
    const char *value = json_string_value(json_object_get(event, member));
    return value && strcmp(value, text) == 0;
}

/* Returns whether the recording has more than names, as it has when its training has ended. */
static bool page_trace_has_events(const timeline *t)
{
    size_t i;
    json_t *event;
    json_array_foreach(t->events, i, event) if (!page_trace_is(event, "ph", "M")) return true;
    return false;
}

/* Takes the time between two pushes of steps in the middle of the recording. Returns whether there are two. */
static bool page_trace_find_step(timeline *t)
{
    int64_t pushes = 0, wanted;
    size_t i;
    json_t *event;
    json_array_foreach(t->events, i, event) pushes += page_trace_is(event, "name", "push a step");
    wanted = pushes / 2;
    t->begin = t->end = NAN;
    json_array_foreach(t->events, i, event)
    {
        if (!page_trace_is(event, "name", "push a step"))
            continue;
        if (wanted == 1)
            t->begin = page_trace_number(event, "ts");
        if (wanted-- == 0)
            t->end = page_trace_number(event, "ts");
    }
    return t->end > t->begin && t->end - t->begin < 1e12;
}

static void page_trace_find_rows(timeline *t)
{
    size_t i;
    json_t *event;
    json_array_foreach(t->events, i, event)
    {
        const char *name = json_string_value(json_object_get(json_object_get(event, "args"), "name"));
        if (!name || !page_trace_is(event, "name", "thread_name"))
            continue;
        if (t->n_rows == MOST_ROWS) {
            t->further_rows++;
            continue;
        }
        t->rows[t->n_rows].thread = json_integer_value(json_object_get(event, "tid"));
        t->rows[t->n_rows++].name = name;
    }
}

static int page_trace_find_row(const timeline *t, const json_t *event)
{
    json_int_t thread = json_integer_value(json_object_get(event, "tid"));
    for (int r = 0; r < t->n_rows; r++)
        if (t->rows[r].thread == thread)
            return r;
    return -1;
}

static int page_trace_find_kind(const json_t *event)
{
    for (int k = 0; k < KINDS; k++)
        if (page_trace_is(event, "cat", kinds[k].category))
            return k;
    return -1;
}

/* Longer ones come first, then earlier ones. */
static int page_trace_compare_bars(const void *left, const void *right)
{
    const bar *a = left, *b = right;
    if (a->length != b->length)
        return a->length < b->length ? 1 : -1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->row - b->row;
}

/* Collects the step's events, the longest first, in one pass over a recording that may have a million. */
static lk_status page_trace_find_bars(timeline *t)
{
    size_t i;
    json_t *event;
    json_array_foreach(t->events, i, event)
    {
        double begin = page_trace_number(event, "ts"), length = page_trace_number(event, "dur");
        if (!(begin < t->end && begin + length > t->begin && length >= 0))
            continue;
        int row = page_trace_find_row(t, event), kind = page_trace_find_kind(event);
        const char *name = json_string_value(json_object_get(event, "name"));
        if (row < 0 || kind < 0)
            continue;
        LK_TRY(LK_GROW(t->bars, &t->capacity, t->n_bars + 1));
        t->bars[t->n_bars++] = (bar){name ? name : "", begin, length, row, kind};
    }
    if (t->n_bars)
        qsort(t->bars, (size_t)t->n_bars, sizeof *t->bars, page_trace_compare_bars);
    return LK_OK;
}

static void page_trace_put_bar(lk_bytes *out, const timeline *t, const bar *b)
{
    double scale = WIDTH / (t->end - t->begin);
    double left = fmax(0, (b->begin - t->begin) * scale);
    double right = fmin(WIDTH, (b->begin + b->length - t->begin) * scale);
    lk__bytes_format(out, "<rect class=\"%s\" x=\"", kinds[b->kind].class);
    lk__bytes_fixed(out, left, 1);
    lk__bytes_format(out, "\" y=\"%d\" height=\"%d\" width=\"", b->row * ROW + 3, BAR);
    lk__bytes_fixed(out, fmax(right - left, 0.4), 1);
    lk__bytes_text(out, "\"><title>");
    lk__html_text(out, b->name);
    lk__bytes_text(out, ", ");
    lk__html_number(out, b->length / 1000);
    lk__bytes_text(out, " ms</title></rect>\n");
}

static void page_trace_put_step(lk_bytes *out, const timeline *t)
{
    lk__bytes_text(out,
                   "<section><h2>A step over time</h2>\n<p>From one step's start to the next, in the middle of the "
                   "recording: ");
    lk__html_number(out, (t->end - t->begin) / 1000);
    lk__bytes_text(out, " ms. Empty parts are waits.");
    if (t->n_bars > MOST_BARS)
        lk__bytes_format(out, " The %lld shortest of %lld events are left out.", (long long)(t->n_bars - MOST_BARS),
                         (long long)t->n_bars);
    if (t->further_rows)
        lk__bytes_format(out, " Devices and threads after the first %d are left out: %d.", MOST_ROWS, t->further_rows);
    lk__bytes_text(out, "</p>\n<ul class=\"legend\">");
    for (int k = 0; k < KINDS; k++)
        if (kinds[k].shown)
            lk__bytes_format(out, "<li><i class=\"%s\"></i>%s</li>", kinds[k].class, kinds[k].shown);
    lk__bytes_text(out, "</ul>\n<div class=\"timeline\"><ol>");
    for (int r = 0; r < t->n_rows; r++) {
        lk__bytes_text(out, "<li>");
        lk__html_text(out, t->rows[r].name);
        lk__bytes_text(out, "</li>");
    }
    lk__bytes_format(out,
                     "</ol><svg role=\"img\" aria-label=\"what devices and threads did in a step\" viewBox=\"0 0 %d "
                     "%d\" preserveAspectRatio=\"none\" style=\"height:%dpx\">\n",
                     WIDTH, t->n_rows * ROW, t->n_rows * ROW);
    for (int k = 0; k < KINDS; k++)
        for (int64_t i = 0; i < t->n_bars && i < MOST_BARS; i++)
            if (t->bars[i].kind == k)
                page_trace_put_bar(out, t, &t->bars[i]);
    lk__bytes_text(out, "</svg></div>\n</section>\n");
}

lk_status lk__page_put_trace(lk_bytes *out, const char *path)
{
    lk_bytes text = {0};
    json_t *object = NULL;
    timeline t = {0};
    lk_status status = lk__record_load(path, LK_RECORD_MOST, &text);
    if (status == LK_OK)
        status = lk__record_parse(path, 0, (const char *)text.data, text.size, &object);
    lk__bytes_free(&text);
    t.events = json_object_get(object, "traceEvents");
    if (status == LK_OK && !t.events)
        status = lk__fail(LK_ERR_FORMAT, "%s: must be a recording with traceEvents", path);
    bool has_events = status == LK_OK && page_trace_has_events(&t);
    if (has_events && !page_trace_find_step(&t))
        status = lk__fail(LK_ERR_FORMAT, "%s: holds no two steps", path);
    if (has_events && status == LK_OK) {
        page_trace_find_rows(&t);
        status = page_trace_find_bars(&t);
    }
    if (has_events && status == LK_OK)
        page_trace_put_step(out, &t);
    lk__free(t.bars);
    json_decref(object);
    return status;
}
