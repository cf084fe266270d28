/* Writes a page about one run, or about several compared. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"
#include "io/charts/canvas.h"
#include "lockstep/runs.h"
#include "report/page_html.h"
#include "report/page_parts.h"
#include "report/page_style.h"
#include "report/record_names.h"
#include "report/step_records.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct page {
    const lk_page_run *runs;
    int count;
    lk_bytes out, notes;
    lk_step_records steps[LK_PAGE_RUNS];
    double *epochs[LK_PAGE_RUNS]; /* numbers of the epochs as they are plotted */
} page;

static bool page_is_evaluated(const lk_run *run)
{
    for (int64_t i = 0; i < run->n_epochs; i++)
        if (!isnan(run->epochs[i].val_accuracy))
            return true;
    return false;
}

static const char *page_setting(const lk_run *run, const char *name)
{
    const char *value = lk_run_get_setting(run, name);
    return value ? value : "";
}

static bool page_shares(const page *p, const char *name)
{
    for (int i = 1; i < p->count; i++)
        if (strcmp(page_setting(p->runs[i].run, name), page_setting(p->runs[0].run, name)) != 0)
            return false;
    return true;
}

/* --- files of the run ----------------------------------------------------------------------------------------------
 */

/* Writes the path of a file next to the run's records, with the run's number if `numbered`. Returns whether the run has
 * one: records in a file of another name have none. */
static bool page_find_file(const lk_run *run, const char *stem, const char *extension, bool numbered,
                           char path[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *slash = strrchr(run->path, '/'), *name = slash ? slash + 1 : run->path;
    int number = lk__record_number(name, "epochs", ".jsonl");
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - run->path) : 1, slash ? run->path : ".") >=
        PATH_MAX)
        return false;
    if (slash == run->path)
        snprintf(folder, sizeof folder, "/");
    return number > 0 && lk__record_path(folder, stem, extension, numbered ? number : 1, path) == LK_OK;
}

/* Notes that a file is left out. Only a lack of memory is an error; a file that is not there is nothing to tell. */
static lk_status page_without(page *p, lk_status status)
{
    if (status == LK_OK || status == LK_ERR_MEMORY)
        return status;
    if (status != LK_ERR_NOT_FOUND) {
        lk__log(LK_LOG_WARNING, "%s; the page does without", lk_error_message());
        lk__bytes_text(&p->notes, "<p class=\"note\">Left out: ");
        lk__html_text(&p->notes, lk_error_message());
        lk__bytes_text(&p->notes, "</p>\n");
    }
    lk_error_clear();
    return LK_OK;
}

static lk_status page_read_steps(page *p, int index)
{
    char path[PATH_MAX];
    if (!page_find_file(p->runs[index].run, "steps", ".jsonl", true, path))
        return page_without(p, lk_error_status());
    lk_status status = lk__step_records_read(path, &p->steps[index]);
    if (status != LK_OK)
        lk__step_records_free(&p->steps[index]);
    return page_without(p, status);
}

/* --- results -------------------------------------------------------------------------------------------------------
 */

static double page_rate(const lk_run *run)
{
    if (!isnan(run->images_per_second) || run->n_epochs == 0)
        return run->images_per_second;
    return run->epochs[run->n_epochs - 1].images_per_second;
}

static void page_open_tile(page *p)
{
    lk__bytes_text(&p->out, "<div class=\"tile\"><b>");
}

static void page_close_tile(page *p, const char *name)
{
    lk__bytes_format(&p->out, "</b><span>%s</span></div>\n", name);
}

static void page_put_tiles(page *p, const lk_run *run)
{
    double accuracy;
    char name[96];
    const lk_run_epoch *best = lk_run_best(run, &accuracy);
    lk__bytes_text(&p->out, "<div class=\"tiles\">\n");
    page_open_tile(p);
    lk__html_percent(&p->out, accuracy, 2);
    snprintf(name, sizeof name, "best %s accuracy, epoch %lld",
             best && isnan(best->val_accuracy) ? "training" : "validation", best ? (long long)best->epoch : 0);
    page_close_tile(p, best ? name : "accuracy: no epoch is complete");
    page_open_tile(p);
    lk__html_duration(&p->out, run->seconds);
    snprintf(name, sizeof name, "for %lld epoch%s, with evaluation", (long long)run->n_epochs,
             run->n_epochs == 1 ? "" : "s");
    page_close_tile(p, name);
    page_open_tile(p);
    lk__html_number(&p->out, page_rate(run));
    page_close_tile(p, "training images a second");
    page_open_tile(p);
    lk__html_number(&p->out, run->n_epochs ? run->epochs[run->n_epochs - 1].train_loss : NAN);
    page_close_tile(p, "training loss, last epoch");
    lk__bytes_text(&p->out, "</div>\n");
}

/* --- curves --------------------------------------------------------------------------------------------------------
 */

/* Shortens names in legends in the middle, since the ends of paths tell them apart. */
static void page_short_name(const char *name, char *text, size_t size)
{
    enum { MOST = 36 };
    size_t length = strlen(name), head = MOST / 2, tail = length > MOST ? length - MOST / 2 : 0;
    if (length <= MOST) {
        snprintf(text, size, "%s", name);
        return;
    }
    while (head > 0 && ((unsigned char)name[head] & 0xC0) == 0x80)
        head--;
    while (((unsigned char)name[tail] & 0xC0) == 0x80)
        tail++;
    snprintf(text, size, "%.*s…%s", (int)head, name, name + tail);
}

/* Collects a column of the epochs of a run. Free it with lk__free. offset: of a double in lk_run_epoch. */
static double *page_epoch_column(const lk_run *run, size_t offset)
{
    double *values = lk__calloc((size_t)run->n_epochs + 1, sizeof *values);
    for (int64_t i = 0; values && i < run->n_epochs; i++)
        values[i] = *(const double *)(const void *)((const char *)&run->epochs[i] + offset);
    return values;
}

/* Adds a chart by step; it is left out if no run has a value. */
static lk_status page_put_step_chart(page *p, int column, const char *title, double most)
{
    lk_series series[LK_PAGE_RUNS];
    char names[LK_PAGE_RUNS][128];
    int64_t points = 0;
    for (int i = 0; i < p->count; i++) {
        const lk_step_records *steps = &p->steps[i];
        page_short_name(p->count > 1 ? p->runs[i].name : "training", names[i], sizeof names[i]);
        series[i] = (lk_series){names[i], steps->column[LK_STEP_NUMBER], steps->column[column], steps->count, false};
        points += steps->count;
    }
    lk_line_chart chart = {
        .title = title, .x_label = "step", .series = series, .series_count = p->count, .y_max = most};
    return points > 0 ? lk__html_line_chart(&p->out, &chart) : LK_OK;
}

/* Adds a chart by epoch: of one run training and validation, of several one of both. */
static lk_status page_put_epoch_chart(page *p, size_t train, size_t val, const char *title, double most)
{
    lk_series series[LK_PAGE_RUNS];
    char names[LK_PAGE_RUNS][128];
    double *owned[LK_PAGE_RUNS] = {NULL};
    int n = p->count > 1 ? p->count : 2;
    lk_status status = LK_OK;
    for (int i = 0; i < n && status == LK_OK; i++) {
        int r = p->count > 1 ? i : 0;
        const lk_run *run = p->runs[r].run;
        owned[i] = page_epoch_column(run, p->count > 1 ? (page_is_evaluated(run) ? val : train) : i ? val : train);
        status = owned[i] ? LK_OK : LK_ERR_MEMORY;
        page_short_name(p->count > 1 ? p->runs[r].name : i ? "validation" : "training", names[i], sizeof names[i]);
        series[i] = (lk_series){names[i], p->epochs[r], owned[i], run->n_epochs, false};
    }
    lk_line_chart chart = {.title = title, .x_label = "epoch", .series = series, .series_count = n, .y_max = most};
    if (status == LK_OK)
        status = lk__html_line_chart(&p->out, &chart);
    for (int i = 0; i < n; i++)
        lk__free(owned[i]);
    return status;
}

static lk_status page_put_curves(page *p)
{
    int64_t steps = 0, epochs = 0;
    char titles[5][256];
    static const char *const what[] = {"training loss by step", "training accuracy by step", "loss by epoch",
                                       "accuracy by epoch", "learning rate by step"};
    for (int i = 0; i < p->count; i++) {
        steps += p->steps[i].count;
        epochs += p->runs[i].run->n_epochs;
    }
    for (int i = 0; i < 5; i++)
        snprintf(titles[i], sizeof titles[i],
                 page_shares(p, "model") && page_shares(p, "data") ? "%.70s on %.70s: %s" : "%.0s%.0s%s",
                 page_setting(p->runs[0].run, "model"), page_setting(p->runs[0].run, "data"), what[i]);
    if (steps + epochs == 0)
        return LK_OK;
    lk__bytes_text(&p->out, "<section><h2>Curves</h2>\n<div class=\"two\">\n");
    if (steps > 0) {
        LK_TRY(page_put_step_chart(p, LK_STEP_LOSS, titles[0], 0.1));
        LK_TRY(page_put_step_chart(p, LK_STEP_ACCURACY, titles[1], 1));
    }
    if (epochs > 0) {
        LK_TRY(page_put_epoch_chart(p, offsetof(lk_run_epoch, train_loss), offsetof(lk_run_epoch, val_loss), titles[2],
                                    0.1));
        LK_TRY(page_put_epoch_chart(p, offsetof(lk_run_epoch, train_accuracy), offsetof(lk_run_epoch, val_accuracy),
                                    titles[3], 1));
    }
    LK_TRY(page_put_step_chart(p, LK_STEP_RATE, titles[4], 1e-9));
    lk__bytes_text(&p->out, "</div></section>\n");
    return LK_OK;
}

/* --- one run -------------------------------------------------------------------------------------------------------
 */

/* A fact that the plan found, in contrast to an option. */
static bool page_is_plan(const char *name)
{
    return strchr(name, ' ') || strcmp(name, "parameters") == 0 || strcmp(name, "implementations") == 0;
}

static void page_put_settings(page *p, const lk_run *run)
{
    static const char *const titles[] = {"Settings", "Plan"};
    lk__bytes_text(&p->out, "<section><div class=\"two\">\n");
    for (int plan = 0; plan < 2; plan++) {
        lk__bytes_format(&p->out, "<div><h2>%s</h2><table>\n", titles[plan]);
        for (int i = 0; i < run->n_settings; i++)
            if (*run->settings[i].value && page_is_plan(run->settings[i].name) == plan)
                lk__html_row(&p->out, run->settings[i].name, run->settings[i].value);
        lk__bytes_text(&p->out, "</table></div>\n");
    }
    lk__bytes_text(&p->out, "</div></section>\n");
}

static void page_put_changes(page *p, const lk_run *run)
{
    if (run->n_changes == 0)
        return;
    lk__bytes_text(&p->out, "<section><h2>Processes that came and went</h2><table class=\"list\">\n");
    for (int64_t i = 0; i < run->n_changes; i++) {
        const lk_run_change *c = &run->changes[i];
        lk__bytes_format(&p->out, "<tr><td>after step %lld</td><td>from %lld to %lld</td><td>", (long long)c->step,
                         (long long)c->before, (long long)c->after);
        lk__html_text(&p->out, c->reason);
        lk__bytes_text(&p->out, "</td></tr>\n");
    }
    lk__bytes_text(&p->out, "</table></section>\n");
}

static void page_put_digests(page *p, const lk_page_run *one)
{
    lk__bytes_text(&p->out, "<section><h2>Digests, and how to repeat it</h2>\n");
    if (one->run->digest) {
        lk__bytes_text(&p->out, "<p>Equal digests mean equal bits, on any number of devices.</p><table>\n");
        lk__html_row(&p->out, "variables", one->run->digest);
        if (one->run->state_digest)
            lk__html_row(&p->out, "with the optimizer's state", one->run->state_digest);
        lk__bytes_text(&p->out, "</table>\n");
    } else {
        lk__bytes_text(&p->out, "<p>The training is not finished: it has no digest yet.</p>\n");
    }
    if (one->command) {
        lk__bytes_text(&p->out, "<h3>Command</h3><pre>");
        lk__html_text(&p->out, one->command);
        lk__bytes_text(&p->out, "</pre>\n");
    }
    lk__bytes_text(&p->out, "</section>\n");
}

static lk_status page_put_evaluation(page *p)
{
    char path[PATH_MAX], matrix[PATH_MAX];
    if (!page_find_file(p->runs[0].run, "evaluation", ".json", false, path) ||
        !page_find_file(p->runs[0].run, "confusion", ".png", false, matrix))
        return page_without(p, lk_error_status());
    return page_without(p, lk__page_put_evaluation(&p->out, path, matrix));
}

/* Puts the section of a file that has the run's number. */
static lk_status page_put_part(page *p, const char *stem, lk_status (*put)(lk_bytes *out, const char *path))
{
    char path[PATH_MAX];
    if (!page_find_file(p->runs[0].run, stem, ".json", true, path))
        return page_without(p, lk_error_status());
    return page_without(p, put(&p->out, path));
}

static lk_status page_put_mistakes(lk_bytes *out, const char *path)
{
    lk_bytes picture = {0};
    lk_status status = lk__html_picture(&picture, path, "the worst mistakes, each with its label and the prediction");
    if (status == LK_OK)
        status = lk__bytes_status(&picture);
    if (status == LK_OK) {
        lk__bytes_text(out, "<section><h2>Worst mistakes</h2>\n<div class=\"sheet\" tabindex=\"0\">");
        lk__bytes_put(out, picture.data, picture.size);
        lk__bytes_text(out, "</div></section>\n");
    }
    lk__bytes_free(&picture);
    return status;
}

static lk_status page_put_one(page *p)
{
    char path[PATH_MAX];
    page_put_tiles(p, p->runs[0].run);
    LK_TRY(page_put_curves(p));
    LK_TRY(page_put_evaluation(p));
    if (page_find_file(p->runs[0].run, "mistakes", ".png", false, path))
        LK_TRY(page_without(p, page_put_mistakes(&p->out, path)));
    LK_TRY(page_put_part(p, "scaling", lk__page_put_scaling));
    LK_TRY(page_put_part(p, "trace", lk__page_put_trace));
    page_put_changes(p, p->runs[0].run);
    page_put_settings(p, p->runs[0].run);
    page_put_digests(p, &p->runs[0]);
    return LK_OK;
}

/* --- several runs --------------------------------------------------------------------------------------------------
 */

static void page_put_results(page *p)
{
    lk__bytes_text(&p->out,
                   "<section><h2>Results</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"list\"><thead><tr>"
                   "<th>run</th><th class=\"n\">best accuracy</th><th class=\"n\">epochs</th><th class=\"n\">time"
                   "</th><th class=\"n\">images/s</th><th>digest</th></tr></thead>\n");
    for (int i = 0; i < p->count; i++) {
        const lk_run *run = p->runs[i].run;
        double accuracy;
        lk_run_best(run, &accuracy);
        lk__bytes_text(&p->out, "<tr><td>");
        lk__html_text(&p->out, p->runs[i].name);
        lk__bytes_text(&p->out, run->finished ? "</td><td class=\"n\">" : " (not finished)</td><td class=\"n\">");
        lk__html_percent(&p->out, accuracy, 2);
        lk__bytes_format(&p->out, "</td><td class=\"n\">%lld</td><td class=\"n\">", (long long)run->n_epochs);
        lk__html_duration(&p->out, run->seconds);
        lk__bytes_text(&p->out, "</td><td class=\"n\">");
        lk__html_number(&p->out, page_rate(run));
        lk__bytes_text(&p->out, "</td><td><code>");
        lk__html_text(&p->out, run->digest ? run->digest : "–");
        lk__bytes_text(&p->out, "</code></td></tr>\n");
    }
    lk__bytes_text(&p->out, "</table></div></section>\n");
}

/* Returns whether the runs differ in a setting that run `index` is the first to have. */
static bool page_differs(const page *p, int index, const char *name)
{
    for (int i = 0; i < index; i++)
        if (lk_run_get_setting(p->runs[i].run, name))
            return false;
    return !page_shares(p, name);
}

static void page_put_differences(page *p)
{
    int different = 0;
    lk__bytes_text(&p->out, "<section><h2>Settings that differ</h2><div class=\"scroll\" tabindex=\"0\"><table "
                            "class=\"list\"><thead><tr><th>setting</th>");
    for (int i = 0; i < p->count; i++) {
        lk__bytes_text(&p->out, "<th>");
        lk__html_text(&p->out, p->runs[i].name);
        lk__bytes_text(&p->out, "</th>");
    }
    lk__bytes_text(&p->out, "</tr></thead>\n");
    for (int index = 0; index < p->count; index++) {
        const lk_run *run = p->runs[index].run;
        for (int s = 0; s < run->n_settings; s++) {
            const char *name = run->settings[s].name;
            if (!page_differs(p, index, name))
                continue;
            different++;
            lk__bytes_text(&p->out, "<tr><th scope=\"row\">");
            lk__html_text(&p->out, name);
            lk__bytes_text(&p->out, "</th>");
            for (int i = 0; i < p->count; i++) {
                const char *value = page_setting(p->runs[i].run, name);
                lk__bytes_text(&p->out, "<td>");
                lk__html_text(&p->out, *value ? value : "–");
                lk__bytes_text(&p->out, "</td>");
            }
            lk__bytes_text(&p->out, "</tr>\n");
        }
    }
    lk__bytes_text(&p->out,
                   different ? "</table></div></section>\n" : "</table></div><p>No setting differs.</p></section>\n");
}

static lk_status page_put_several(page *p)
{
    page_put_results(p);
    LK_TRY(page_put_curves(p));
    page_put_differences(p);
    for (int i = 0; i < p->count; i++) {
        if (!p->runs[i].command)
            continue;
        lk__bytes_text(&p->out, i == 0 ? "<section><h2>How to repeat them</h2>\n" : "");
        lk__bytes_text(&p->out, "<h3>");
        lk__html_text(&p->out, p->runs[i].name);
        lk__bytes_text(&p->out, "</h3><pre>");
        lk__html_text(&p->out, p->runs[i].command);
        lk__bytes_text(&p->out, i == p->count - 1 ? "</pre></section>\n" : "</pre>\n");
    }
    return LK_OK;
}

/* --- the page ------------------------------------------------------------------------------------------------------
 */

static void page_put_style(page *p)
{
    const char *at = page_style;
    for (const char *dark; (dark = strstr(at, "DARK")); at = dark + strlen("DARK")) {
        lk__bytes_put(&p->out, at, (size_t)(dark - at));
        lk__bytes_text(&p->out, page_dark);
    }
    lk__bytes_text(&p->out, at);
    for (int i = 0; i < LK__COLORS; i++)
        lk__bytes_format(&p->out,
                         ".chart [stroke=\"#%06X\"]{stroke:var(--c%d)}.chart circle[fill=\"#%06X\"]{fill:var(--c%d)}\n",
                         (unsigned)lk__colors[i], i, (unsigned)lk__colors[i], i);
}

static void page_put_title(page *p)
{
    const lk_run *run = p->runs[0].run;
    if (p->count > 1) {
        lk__bytes_format(&p->out, "%d runs compared", p->count);
        return;
    }
    lk__html_text(&p->out, page_setting(run, "model"));
    lk__bytes_text(&p->out, " on ");
    lk__html_text(&p->out, page_setting(run, "data"));
}

static void page_begin(page *p)
{
    const lk_run *run = p->runs[0].run;
    lk__bytes_text(&p->out,
                   "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                   "content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    page_put_title(p);
    lk__bytes_text(&p->out, "</title>\n<style>\n");
    page_put_style(p);
    lk__bytes_text(&p->out, "</style></head>\n<body><main>\n<header><div><h1>");
    page_put_title(p);
    lk__bytes_text(&p->out, "</h1>\n<p class=\"sub\">");
    if (p->count == 1) {
        lk__html_text(&p->out, p->runs[0].name);
        lk__bytes_text(&p->out, " · ");
        lk__html_text(&p->out, page_setting(run, "devices in use"));
        lk__bytes_text(&p->out, run->finished ? " · finished" : " · not finished");
        if (run->digest) {
            lk__bytes_text(&p->out, " · digest <code>");
            lk__html_text(&p->out, run->digest);
            lk__bytes_text(&p->out, "</code>");
        }
    } else {
        lk__bytes_text(&p->out, "Equal digests mean equal bits, on any number of devices.");
    }
    lk__bytes_text(&p->out, "</p></div><button id=\"theme\" hidden type=\"button\">Dark</button></header>\n");
}

static lk_status page_make(page *p, const char *path)
{
    for (int i = 0; i < p->count; i++) {
        const lk_run *run = p->runs[i].run;
        p->epochs[i] = lk__calloc((size_t)run->n_epochs + 1, sizeof *p->epochs[i]);
        if (!p->epochs[i])
            return LK_ERR_MEMORY;
        for (int64_t e = 0; e < run->n_epochs; e++)
            p->epochs[i][e] = (double)run->epochs[e].epoch;
        LK_TRY(page_read_steps(p, i));
    }
    page_begin(p);
    LK_TRY(p->count == 1 ? page_put_one(p) : page_put_several(p));
    lk__bytes_put(&p->out, p->notes.data, p->notes.size);
    lk__bytes_text(&p->out, "</main>\n<script>");
    lk__bytes_text(&p->out, page_script);
    lk__bytes_text(&p->out, "</script></body></html>\n");
    LK_TRY(lk__bytes_status(&p->notes));
    LK_TRY(lk__bytes_status(&p->out));
    return lk__replace_file(path, p->out.data, p->out.size);
}

lk_status lk_page_write(const lk_page_run *runs, int count, const char *path)
{
    if (count < 1 || count > LK_PAGE_RUNS)
        LK_FAIL(LK_ERR_ARGUMENT, "%d runs: a page shows 1 … %d", count, LK_PAGE_RUNS);
    page p = {.runs = runs, .count = count};
    lk_status status = page_make(&p, path);
    for (int i = 0; i < count; i++) {
        lk__step_records_free(&p.steps[i]);
        lk__free(p.epochs[i]);
    }
    lk__bytes_free(&p.out);
    lk__bytes_free(&p.notes);
    return status;
}
