/* Curves of a run, or of several, on a page. */
#include "base/mem.h"
#include "base/status.h"
#include "report/page_html.h"
#include "report/page_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct curves {
    lk_bytes *out;
    const lk_page_run *runs;
    int count;
    const lk_step_records *const *steps; /* [count] */
} curves;

/* Shortens names in legends in the middle, since the ends of paths tell them apart. A line break becomes a space: the
 * page's script has one name in each line. */
static void curves_short_name(const char *name, char *text, size_t size)
{
    enum { MOST = 36 };
    size_t length = strlen(name), head = length > MOST ? MOST / 2 : 0, tail = length > MOST ? length - MOST / 2 : 0;
    while (head > 0 && ((unsigned char)name[head] & 0xC0) == 0x80)
        head--;
    while (((unsigned char)name[tail] & 0xC0) == 0x80)
        tail++;
    if (length <= MOST)
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "%.*s…%s", (int)head, name, name + tail);
    for (char *c = text; (c = strchr(c, '\n'));)
        *c = ' ';
}

/* Returns whether every run with an epoch has a validation accuracy, so that all can be compared by it. */
static bool curves_are_evaluated(const curves *c)
{
    for (int r = 0; r < c->count; r++) {
        const lk_run *run = c->runs[r].run;
        int64_t i = 0;
        while (i < run->n_epochs && isnan(run->epochs[i].val_accuracy))
            i++;
        if (i == run->n_epochs && i > 0)
            return false;
    }
    return true;
}

/* Collects a column of the epochs of a run, and their numbers behind it. Free it with lk__free. offset: of a double in
 * lk_run_epoch. */
static double *curves_epoch_column(const lk_run *run, size_t offset)
{
    double *values = lk__calloc((size_t)run->n_epochs + 1, 2 * sizeof *values);
    for (int64_t i = 0; values && i < run->n_epochs; i++) {
        values[i] = *(const double *)(const void *)((const char *)&run->epochs[i] + offset);
        values[run->n_epochs + i] = (double)run->epochs[i].epoch;
    }
    return values;
}

/* Adds a chart by step; it is left out if no run has a value. */
static lk_status curves_put_step_chart(const curves *c, int column, const char *title, double most)
{
    lk_series series[LK_PAGE_RUNS];
    char names[LK_PAGE_RUNS][128];
    int64_t points = 0;
    for (int i = 0; i < c->count; i++) {
        const lk_step_records *steps = c->steps[i];
        curves_short_name(c->count > 1 ? c->runs[i].name : "training", names[i], sizeof names[i]);
        series[i] = (lk_series){names[i], steps->column[LK_STEP_NUMBER], steps->column[column], steps->count, false};
        points += steps->count;
    }
    lk_line_chart chart = {
        .title = title, .x_label = "step", .series = series, .series_count = c->count, .y_max = most};
    return points > 0 ? lk__html_line_chart(c->out, &chart) : LK_OK;
}

/* Adds a chart by epoch: of one run training and validation, of several one of both, the same of all. */
static lk_status curves_put_epoch_chart(const curves *c, size_t train, size_t val, const char *title, double most)
{
    lk_series series[LK_PAGE_RUNS];
    char names[LK_PAGE_RUNS][128];
    double *owned[LK_PAGE_RUNS] = {NULL};
    int n = c->count > 1 ? c->count : 2;
    bool is_evaluated = curves_are_evaluated(c);
    lk_status status = LK_OK;
    for (int i = 0; i < n && status == LK_OK; i++) {
        int r = c->count > 1 ? i : 0;
        const lk_run *run = c->runs[r].run;
        owned[i] = curves_epoch_column(run, (c->count > 1 ? is_evaluated : i) ? val : train);
        status = owned[i] ? LK_OK : LK_ERR_MEMORY;
        curves_short_name(c->count > 1 ? c->runs[r].name : i ? "validation" : "training", names[i], sizeof names[i]);
        series[i] = (lk_series){names[i], owned[i] ? owned[i] + run->n_epochs : NULL, owned[i], run->n_epochs, false};
    }
    lk_line_chart chart = {.title = title, .x_label = "epoch", .series = series, .series_count = n, .y_max = most};
    if (status == LK_OK)
        status = lk__html_line_chart(c->out, &chart);
    for (int i = 0; i < n; i++)
        lk__free(owned[i]);
    return status;
}

lk_status lk__page_put_curves(lk_bytes *out, const lk_page_run *runs, int count, const lk_step_records *const *records)
{
    const curves all = {out, runs, count, records}, *c = &all;
    int64_t steps = 0, epochs = 0;
    char titles[5][256];
    static const char *const what[] = {"training loss by step", "training accuracy by step", "loss by epoch",
                                       "accuracy by epoch", "learning rate by step"};
    const char *of = count == 1 ? "" : curves_are_evaluated(c) ? "validation " : "training ";
    for (int i = 0; i < c->count; i++) {
        steps += c->steps[i]->count;
        epochs += c->runs[i].run->n_epochs;
    }
    for (int i = 0; i < 5; i++)
        snprintf(titles[i], sizeof titles[i],
                 lk__page_shares(c->runs, c->count, "model") && lk__page_shares(c->runs, c->count, "data")
                     ? "%.70s on %.70s: %s%s"
                     : "%.0s%.0s%s%s",
                 lk__page_setting(c->runs[0].run, "model"), lk__page_setting(c->runs[0].run, "data"),
                 i == 2 || i == 3 ? of : "", what[i]);
    if (steps + epochs == 0)
        return LK_OK;
    lk__bytes_text(c->out, "<section><h2>Curves</h2>\n<div class=\"two\">\n");
    if (steps > 0) {
        LK_TRY(curves_put_step_chart(c, LK_STEP_LOSS, titles[0], 0.1));
        LK_TRY(curves_put_step_chart(c, LK_STEP_ACCURACY, titles[1], 1));
    }
    if (epochs > 0) {
        LK_TRY(curves_put_epoch_chart(c, offsetof(lk_run_epoch, train_loss), offsetof(lk_run_epoch, val_loss),
                                      titles[2], 0.1));
        LK_TRY(curves_put_epoch_chart(c, offsetof(lk_run_epoch, train_accuracy), offsetof(lk_run_epoch, val_accuracy),
                                      titles[3], 1));
    }
    LK_TRY(curves_put_step_chart(c, LK_STEP_RATE, titles[4], 1e-9));
    lk__bytes_text(c->out, "</div></section>\n");
    return LK_OK;
}
