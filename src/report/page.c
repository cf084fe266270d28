/* Writes a page about one run, or about several compared. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"
#include "io/charts/canvas.h"
#include "lockstep/runs.h"
#include "report/page.h"
#include "report/page_frame.h"
#include "report/page_html.h"
#include "report/page_parts.h"
#include "report/record_names.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct page {
    const lk_page_run *runs;
    int count;
    const lk_page_live *live; /* NULL: the page is a file */
    lk_bytes out, notes;
    lk_step_records read[LK_PAGE_RUNS];
    const lk_step_records *steps[LK_PAGE_RUNS]; /* the live ones, or those that were read */
} page;

/* --- files of the run ----------------------------------------------------------------------------------------------
 */

lk_status lk__page_check_inside(const char *folder, const char *path)
{
    char real[PATH_MAX];
    size_t length = strlen(folder);
    if (!realpath(path, real))
        LK_FAIL(errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (strncmp(real, folder, length) != 0 || (real[length] != '/' && folder[length - 1] != '/'))
        LK_FAIL(LK_ERR_IO, "%s: leads out of the folder that is shown", path);
    return LK_OK;
}

bool lk__page_find_file(const lk_run *run, const char *inside, const lk_page_file *file, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *slash = strrchr(run->path, '/'), *name = slash ? slash + 1 : run->path;
    int number = lk__record_number(name, "epochs", ".jsonl");
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - run->path) : 1, slash ? run->path : ".") >=
        PATH_MAX)
        return false;
    if (slash == run->path)
        snprintf(folder, sizeof folder, "/");
    return number > 0 &&
           lk__record_path(folder, file->stem, file->extension, file->is_shared ? 1 : number, path) == LK_OK &&
           (!inside || lk__page_check_inside(inside, path) == LK_OK);
}

/* The same for the page's run `index`. */
static bool page_find_file(const page *p, int index, const lk_page_file *file, char path[PATH_MAX])
{
    return lk__page_find_file(p->runs[index].run, p->live ? p->live->folder : NULL, file, path);
}

static void page_put_note(page *p, const char *text)
{
    lk__bytes_text(&p->notes, "<p class=\"note\">Left out: ");
    lk__html_text(&p->notes, text);
    lk__bytes_text(&p->notes, "</p>\n");
}

/* Notes that a file is left out. Only a lack of memory is an error; a file that is not there is nothing to tell. */
static lk_status page_without(page *p, lk_status status)
{
    if (status == LK_OK || status == LK_ERR_MEMORY)
        return status;
    if (status != LK_ERR_NOT_FOUND) {
        if (!p->live)
            lk__log(LK_LOG_WARNING, "%s; the page does without", lk_error_message());
        page_put_note(p, lk_error_message());
    }
    lk_error_clear();
    return LK_OK;
}

static lk_status page_read_steps(page *p, int index)
{
    char path[PATH_MAX];
    if (!page_find_file(p, index, &LK_PAGE_STEPS, path))
        return page_without(p, lk_error_status());
    lk_status status = lk__step_records_read(path, &p->read[index]);
    if (status != LK_OK)
        lk__step_records_free(&p->read[index]);
    return page_without(p, status);
}

/* --- results -------------------------------------------------------------------------------------------------------
 */

const char *lk__page_state(const lk_run *run)
{
    return run->finished ? "finished" : run->trains ? "trains" : "interrupted";
}

void lk__page_put_epoch(lk_bytes *out, const lk_run *run, const lk_step_records *steps)
{
    const char *setting = lk_run_get_setting(run, "epochs");
    double epochs = setting ? strtod(setting, NULL) : 0;
    double trained = (double)lk_run_last_epoch(run);
    if (run->trains && steps->count > 0)
        trained = fmax(trained, steps->column[LK_STEP_EPOCH][steps->count - 1]);
    bool is_part = run->trains || (!run->finished && trained < epochs);
    if (!(trained >= 0 && trained < 1e9 && epochs < 1e9)) {
        lk__bytes_text(out, "–");
        return;
    }
    lk__bytes_fixed(out, trained, run->trains ? 2 : 0);
    if (!is_part || !(epochs > 0))
        return;
    lk__bytes_format(out, " of %lld", (long long)epochs);
    if (!run->trains)
        return;
    lk__bytes_text(out, "<progress aria-label=\"epochs\" value=\"");
    lk__bytes_fixed(out, fmin(trained / epochs, 1), 4);
    lk__bytes_text(out, "\"></progress>");
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
    snprintf(name, sizeof name, "best %s accuracy, epoch&nbsp;%lld",
             best && isnan(best->val_accuracy) ? "training" : "validation", best ? (long long)best->epoch : 0);
    page_close_tile(p, best ? name : "accuracy: no epoch is complete");
    page_open_tile(p);
    lk__html_duration(&p->out, run->seconds);
    int64_t epochs = lk_run_last_epoch(run);
    snprintf(name, sizeof name, "for %lld epoch%s, with evaluation", (long long)epochs, epochs == 1 ? "" : "s");
    page_close_tile(p, name);
    page_open_tile(p);
    lk__html_number(&p->out, lk_run_rate(run));
    page_close_tile(p, "training images a second");
    page_open_tile(p);
    lk__html_number(&p->out, run->n_epochs ? run->epochs[run->n_epochs - 1].train_loss : NAN);
    page_close_tile(p, "training loss, last epoch");
    lk__bytes_text(&p->out, "</div>\n");
}

static void page_put_now(page *p)
{
    const lk_run *run = p->runs[0].run;
    const lk_step_records *steps = p->steps[0];
    if (!run->trains)
        return;
    lk__bytes_text(&p->out, "<section class=\"now\"><p>");
    if (steps->count > 0) {
        lk__bytes_text(&p->out, "Step ");
        lk__bytes_fixed(&p->out, fmin(steps->column[LK_STEP_NUMBER][steps->count - 1], 1e15), 0);
        lk__bytes_text(&p->out, ", loss ");
        lk__html_number(&p->out, steps->column[LK_STEP_LOSS][steps->count - 1]);
        lk__bytes_text(&p->out, ", epoch ");
    } else {
        lk__bytes_text(&p->out, "Epoch ");
    }
    lk__page_put_epoch(&p->out, run, steps);
    lk__bytes_text(&p->out, "</p></section>\n");
}

/* --- one run -------------------------------------------------------------------------------------------------------
 */

/* Says what equal digests of the page's runs mean. */
static const char *page_digests_text(const page *p)
{
    for (int i = 0; i < p->count; i++)
        if (!p->runs[i].run->repeatable)
            return "Equal digests mean equal bits.";
    return "Equal digests mean equal bits, on any number of devices.";
}

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
    lk__bytes_format(&p->out, "<section><h2>Digests%s</h2>\n", one->command ? ", and how to repeat it" : "");
    if (one->run->digest) {
        lk__bytes_format(&p->out, "<p>%s</p><table>\n", page_digests_text(p));
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
    if (!page_find_file(p, 0, &(lk_page_file){"evaluation", ".json", true}, path))
        return page_without(p, lk_error_status());
    if (!page_find_file(p, 0, &(lk_page_file){"confusion", ".png", true}, matrix)) {
        LK_TRY(page_without(p, lk_error_status()));
        *matrix = '\0';
    }
    return page_without(p, lk__page_put_evaluation(&p->out, path, matrix));
}

/* Puts the section of a file that has the run's number. */
static lk_status page_put_part(page *p, const char *stem, lk_status (*put)(lk_bytes *out, const char *path))
{
    char path[PATH_MAX];
    if (!page_find_file(p, 0, &(lk_page_file){stem, ".json", false}, path))
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

/* Puts what changes while the run trains. */
static lk_status page_put_progress(page *p)
{
    lk__bytes_text(&p->out, p->live ? "<div id=\"progress\">\n" : "");
    if (p->live)
        page_put_now(p);
    page_put_tiles(p, p->runs[0].run);
    LK_TRY(lk__page_put_curves(&p->out, p->runs, p->count, p->steps));
    lk__bytes_text(&p->out, p->live ? "</div>\n" : "");
    return LK_OK;
}

static lk_status page_put_one(page *p)
{
    char path[PATH_MAX];
    LK_TRY(page_put_progress(p));
    LK_TRY(page_put_evaluation(p));
    bool found = page_find_file(p, 0, &(lk_page_file){"mistakes", ".png", true}, path);
    LK_TRY(page_without(p, found ? page_put_mistakes(&p->out, path) : lk_error_status()));
    LK_TRY(page_put_part(p, "scaling", lk__page_put_scaling));
    LK_TRY(page_put_part(p, "trace", lk__page_put_trace));
    page_put_changes(p, p->runs[0].run);
    page_put_settings(p, p->runs[0].run);
    page_put_digests(p, &p->runs[0]);
    return LK_OK;
}

/* --- several runs --------------------------------------------------------------------------------------------------
 */

static lk_status page_put_several(page *p)
{
    lk__page_put_results(&p->out, p->runs, p->count);
    LK_TRY(lk__page_put_curves(&p->out, p->runs, p->count, p->steps));
    lk__page_put_differences(&p->out, p->runs, p->count);
    bool has_section = false;
    for (int i = 0; i < p->count; i++) {
        if (!p->runs[i].command)
            continue;
        lk__bytes_text(&p->out, has_section ? "<h3>" : "<section><h2>How to repeat them</h2>\n<h3>");
        lk__html_text(&p->out, p->runs[i].name);
        lk__bytes_text(&p->out, "</h3><pre>");
        lk__html_text(&p->out, p->runs[i].command);
        lk__bytes_text(&p->out, "</pre>\n");
        has_section = true;
    }
    lk__bytes_text(&p->out, has_section ? "</section>\n" : "");
    return LK_OK;
}

/* --- the page ------------------------------------------------------------------------------------------------------
 */

static void page_put_title(const page *p, lk_bytes *out)
{
    const lk_run *run = p->runs[0].run;
    if (p->count > 1) {
        lk__bytes_format(out, "%d runs compared", p->count);
        return;
    }
    lk__html_text(out, lk__page_setting(run, "model"));
    lk__bytes_text(out, " on ");
    lk__html_text(out, lk__page_setting(run, "data"));
}

static void page_put_about(const page *p, lk_bytes *out)
{
    const lk_run *run = p->runs[0].run;
    if (p->count > 1) {
        lk__bytes_text(out, page_digests_text(p));
        return;
    }
    lk__html_text(out, p->runs[0].name);
    lk__bytes_text(out, " · ");
    lk__html_text(out, lk__page_setting(run, "devices in use"));
    lk__bytes_format(out, " · %s", lk__page_state(run));
    if (run->digest) {
        lk__bytes_text(out, " · digest <code>");
        lk__html_text(out, run->digest);
        lk__bytes_text(out, "</code>");
    }
}

static lk_status page_put_all(page *p)
{
    lk_bytes title = {0}, about = {0};
    page_put_title(p, &title);
    page_put_about(p, &about);
    lk__bytes_char(&title, '\0');
    lk__bytes_char(&about, '\0');
    lk_status status = lk__bytes_status(&title);
    if (status == LK_OK)
        status = lk__bytes_status(&about);
    const lk_page_frame frame = {.title = (const char *)title.data,
                                 .about = (const char *)about.data,
                                 .is_served = p->live,
                                 .events = p->live ? p->live->events : NULL,
                                 .is_below = true};
    if (status == LK_OK) {
        lk__page_begin(&p->out, &frame);
        status = p->count == 1 ? page_put_one(p) : page_put_several(p);
        lk__bytes_put(&p->out, p->notes.data, p->notes.size);
        lk__page_end(&p->out, &frame);
    }
    lk__bytes_free(&title);
    lk__bytes_free(&about);
    return status;
}

static lk_status page_prepare(page *p)
{
    for (int i = 0; i < p->count; i++) {
        p->steps[i] = p->live ? p->live->steps : &p->read[i];
        if (p->live && p->live->problem)
            page_put_note(p, p->live->problem);
        if (!p->live)
            LK_TRY(page_read_steps(p, i));
    }
    return LK_OK;
}

/* Makes the page, or the part that `put` puts, and appends it to *out if all went well. */
static lk_status page_make(page *p, lk_status (*put)(page *p), lk_bytes *out)
{
    lk_status status = page_prepare(p);
    if (status == LK_OK)
        status = put(p);
    if (status == LK_OK)
        status = lk__bytes_status(&p->notes);
    if (status == LK_OK)
        status = lk__bytes_status(&p->out);
    if (status == LK_OK)
        lk__bytes_put(out, p->out.data, p->out.size);
    for (int i = 0; i < p->count; i++)
        lk__step_records_free(&p->read[i]);
    lk__bytes_free(&p->out);
    lk__bytes_free(&p->notes);
    return status == LK_OK ? lk__bytes_status(out) : status;
}

lk_status lk__page_make(const lk_page_run *run, const lk_page_live *live, lk_bytes *out)
{
    return page_make(&(page){.runs = run, .count = 1, .live = live}, page_put_all, out);
}

lk_status lk__page_make_progress(const lk_page_run *run, const lk_page_live *live, lk_bytes *out)
{
    return page_make(&(page){.runs = run, .count = 1, .live = live}, page_put_progress, out);
}

/* `--html` before the names of records easily takes the first of them for the page. */
static lk_status page_check_replaceable(const char *path)
{
    static const char begin[] = "<!DOCTYPE html>";
    char bytes[sizeof begin - 1];
    size_t size = 0;
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return LK_OK;
    FILE *file = fopen(path, "re");
    if (file) {
        size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
    }
    if (size > 0 && (size < sizeof bytes || memcmp(bytes, begin, size) != 0))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: is no page, and a page would replace it: name another file", path);
    return LK_OK;
}

lk_status lk_page_write(const lk_page_run *runs, int count, const char *path)
{
    lk_bytes out = {0};
    if (count < 1 || count > LK_PAGE_RUNS)
        LK_FAIL(LK_ERR_ARGUMENT, "%d runs: a page shows 1 … %d", count, LK_PAGE_RUNS);
    LK_TRY(page_check_replaceable(path));
    lk_status status = page_make(&(page){.runs = runs, .count = count}, page_put_all, &out);
    if (status == LK_OK)
        status = lk__replace_file(path, out.data, out.size);
    lk__bytes_free(&out);
    return status;
}
