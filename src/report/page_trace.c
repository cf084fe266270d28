/* Draws a step of a recording (lk_trace_write): a row for each device and thread, a bar for each event. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "report/page_html.h"
#include "report/page_parts.h"
#include "report/record_file.h"

#include <math.h>

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

typedef struct timeline {
    const json_t *events;
    double begin, end; /* of the step, in microseconds */
    struct {
        json_int_t thread;
        const char *name;
    } rows[MOST_ROWS];
    int n_rows;
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
        if (t->n_rows == MOST_ROWS || !name || !page_trace_is(event, "name", "thread_name"))
            continue;
        t->rows[t->n_rows].thread = json_integer_value(json_object_get(event, "tid"));
        t->rows[t->n_rows++].name = name;
    }
}

static void page_trace_put_bar(lk_bytes *out, const timeline *t, const json_t *event, int row, const char *class)
{
    double begin = page_trace_number(event, "ts"), length = page_trace_number(event, "dur");
    double scale = WIDTH / (t->end - t->begin);
    const char *name = json_string_value(json_object_get(event, "name"));
    if (!(begin < t->end && begin + length > t->begin && length >= 0))
        return;
    double left = fmax(0, (begin - t->begin) * scale), right = fmin(WIDTH, (begin + length - t->begin) * scale);
    lk__bytes_format(out, "<rect class=\"%s\" x=\"", class);
    lk__bytes_fixed(out, left, 1);
    lk__bytes_format(out, "\" y=\"%d\" height=\"%d\" width=\"", row * ROW + 3, BAR);
    lk__bytes_fixed(out, fmax(right - left, 0.4), 1);
    lk__bytes_text(out, "\"><title>");
    lk__html_text(out, name ? name : "");
    lk__bytes_text(out, ", ");
    lk__html_number(out, length / 1000);
    lk__bytes_text(out, " ms</title></rect>\n");
}

static void page_trace_put_row(lk_bytes *out, const timeline *t, int row, int *bars)
{
    for (int k = 0; k < KINDS; k++) {
        size_t i;
        json_t *event;
        json_array_foreach(t->events, i, event)
        {
            if (json_integer_value(json_object_get(event, "tid")) == t->rows[row].thread &&
                page_trace_is(event, "cat", kinds[k].category) && (*bars)++ < MOST_BARS)
                page_trace_put_bar(out, t, event, row, kinds[k].class);
        }
    }
}

static void page_trace_put_step(lk_bytes *out, const timeline *t)
{
    int bars = 0;
    lk__bytes_text(out,
                   "<section><h2>A step over time</h2>\n<p>From one step's start to the next, in the middle of the "
                   "recording: ");
    lk__html_number(out, (t->end - t->begin) / 1000);
    lk__bytes_text(out, " ms. Empty parts are waits.</p>\n<ul class=\"legend\">");
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
    for (int r = 0; r < t->n_rows; r++)
        page_trace_put_row(out, t, r, &bars);
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
    if (status == LK_OK && !page_trace_find_step(&t))
        status = lk__fail(LK_ERR_FORMAT, "%s: holds no two steps", path);
    if (status == LK_OK) {
        page_trace_find_rows(&t);
        page_trace_put_step(out, &t);
    }
    json_decref(object);
    return status;
}
