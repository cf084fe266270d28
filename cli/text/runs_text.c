/* Texts shared by the list and the comparison of runs, and the comparison itself. */
#include "cli/text/runs_text.h"

#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/plot.h"
#include "lockstep/tensor.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cli_run_setting(const lk_run *run, const char *name)
{
    const char *value = lk_run_get_setting(run, name);
    return value && *value ? value : "-";
}

const char *cli_run_state(const lk_run *run)
{
    return run->finished ? "finished" : run->trains ? "trains" : "interrupted";
}

const char *cli_best_text(const lk_run *run, char text[CLI_BEST])
{
    double accuracy;
    const lk_run_epoch *best = lk_run_best(run, &accuracy);
    if (!best)
        return "-";
    snprintf(text, CLI_BEST, "%.4f (%sepoch %" PRId64 ")", accuracy, isnan(best->val_accuracy) ? "training, " : "",
             best->epoch);
    return text;
}

const char *cli_time_text(double seconds, char text[CLI_TIME])
{
    if (isnan(seconds))
        snprintf(text, CLI_TIME, "-");
    else if (seconds < 60)
        snprintf(text, CLI_TIME, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(text, CLI_TIME, "%d min %d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, CLI_TIME, "%.0f h %d min", floor(seconds / 3600), (int)fmod(seconds / 60, 60));
    return text;
}

void cli_run_name(const char *path, char *text, size_t size)
{
    static const char first[] = "/epochs.jsonl";
    size_t length = strlen(path), end = sizeof first - 1;
    if (length > end && strcmp(path + length - end, first) == 0) {
        snprintf(text, size, "%.*s/epochs-2.jsonl", (int)(length - end), path);
        length -= access(text, F_OK) != 0 ? end : 0;
    }
    snprintf(text, size, "%.*s", (int)length, path);
}

enum { NAME = 22, COLUMN = 32 }; /* wide enough for a digest */

static void runs_text_comparison_print_line(const char *name, const char *a, const char *b, int width)
{
    fputs("  ", stdout);
    cli_print_padded(name, NAME);
    putchar(' ');
    cli_print_padded(a, width);
    fputs("  ", stdout);
    cli_print_clean(b, stdout);
    putchar('\n');
}

/* Moves the beginning of *text that fits into `width` columns to `part`. Breaks the text at a space, or behind a comma
 * or a slash, if there is one. */
static void runs_text_take_part(const char **text, int width, char *part, size_t size)
{
    size_t end = 0, good = 0;
    for (int used = 0; (*text)[end] && end + 1 < size; end++) {
        char c = (*text)[end];
        good = c == ' ' ? end : good;
        used += ((unsigned char)c & 0xC0) != 0x80;
        if (used > width)
            break;
        good = c == ',' || c == '/' ? end + 1 : good;
    }
    end = (*text)[end] && good ? good : end;
    snprintf(part, size, "%.*s", (int)end, *text);
    *text += end;
    *text += strspn(*text, " ");
}

/* On a terminal cells that are too wide take several lines. */
static void runs_text_comparison_print_row(const char *name, const char *a, const char *b)
{
    enum { BESIDE = 2 + NAME + 1 + 2, LEAST = 8 };
    int columns = cli_columns(stdout), rest = columns - BESIDE, width = COLUMN;
    if (columns == INT_MAX) {
        runs_text_comparison_print_line(name, a, b, width);
        return;
    }
    if (rest < 2 * width)
        rest = width = rest < 2 * LEAST ? LEAST : rest / 2;
    else
        rest -= width;
    do {
        char parts[2][1024];
        runs_text_take_part(&a, width, parts[0], sizeof parts[0]);
        runs_text_take_part(&b, rest, parts[1], sizeof parts[1]);
        runs_text_comparison_print_line(name, parts[0], parts[1], width);
        name = "";
    } while (*a || *b);
}

/* Prints the settings that differ: those of a, then those that only b has. Returns their number. */
static int runs_text_comparison_print_differences(const lk_run *a, const lk_run *b)
{
    int different = 0;
    for (int side = 0; side < 2; side++) {
        const lk_run *own = side ? b : a, *other = side ? a : b;
        for (int i = 0; i < own->n_settings; i++) {
            const char *name = own->settings[i].name, *value = own->settings[i].value;
            const char *other_value = lk_run_get_setting(other, name);
            if (other_value ? side || strcmp(value, other_value) == 0 : !*value)
                continue; /* equal, printed already, or not set in either */
            runs_text_comparison_print_row(name, cli_run_setting(a, name), cli_run_setting(b, name));
            different++;
        }
    }
    return different;
}

static void runs_text_comparison_print_results(const lk_run *a, const lk_run *b)
{
    const lk_run *const runs[2] = {a, b};
    char best[2][CLI_BEST], took[2][CLI_TIME], epochs[2][CLI_NUMBER], rate[2][CLI_NUMBER];
    for (int i = 0; i < 2; i++) {
        double images = lk_run_rate(runs[i]);
        cli_time_text(runs[i]->seconds, took[i]);
        bool finished = runs[i]->finished;
        snprintf(epochs[i], CLI_NUMBER, "%" PRId64 "%s%s", lk_run_last_epoch(runs[i]), finished ? "" : ", ",
                 finished ? "" : cli_run_state(runs[i]));
        snprintf(rate[i], CLI_NUMBER, isnan(images) ? "-" : "%.0f", images);
    }
    runs_text_comparison_print_row("best accuracy", cli_best_text(a, best[0]), cli_best_text(b, best[1]));
    runs_text_comparison_print_row("epochs", epochs[0], epochs[1]);
    runs_text_comparison_print_row("time", took[0], took[1]);
    runs_text_comparison_print_row("images a second", rate[0], rate[1]);
    runs_text_comparison_print_row("digest", a->digest ? a->digest : "-", b->digest ? b->digest : "-");
}

/* A quantity of a run, per epoch. */
typedef struct curve {
    double *x, *y;
    bool measured;
} curve;

/* offset: that of a double in lk_run_epoch. Returns false if memory ran out. */
static bool runs_text_make_curve(const lk_run *run, size_t offset, curve *c)
{
    size_t n = (size_t)run->n_epochs;
    *c = (curve){calloc(n + 1, sizeof *c->x), calloc(n + 1, sizeof *c->y), false};
    for (size_t i = 0; c->x && c->y && i < n; i++) {
        c->x[i] = (double)run->epochs[i].epoch;
        c->y[i] = *(const double *)((const char *)&run->epochs[i] + offset);
        c->measured |= !isnan(c->y[i]);
    }
    return c->x && c->y;
}

static lk_text_style runs_text_terminal_style(void)
{
    lk_text_style style = lk_text_style_of(stdout);
    style.columns = style.columns < 24 ? 80 : style.columns < 110 ? style.columns : 110;
    style.rows = 18;
    return style;
}

static lk_status runs_text_nothing_to_write(const char *out)
{
    fputs("lockstep: ", stderr);
    cli_print_clean(out, stderr);
    fputs(": not written: neither run has an epoch to draw\n", stderr);
    return LK_ERR_NOT_FOUND;
}

/* Draws one quantity of both runs in the terminal and in the file `out` (NULL: none). If neither
 * run has measured it, the terminal shows nothing and a file is an error. offset: as for
 * runs_text_make_curve. most: the upper end of the axis; 0: from the values. */
static lk_status runs_text_draw_curves(const lk_run *a, const lk_run *b, const char *const names[2], const char *title,
                                       size_t offset, double most, const char *out)
{
    curve curves[2];
    bool made = runs_text_make_curve(a, offset, &curves[0]);
    made = runs_text_make_curve(b, offset, &curves[1]) && made;
    lk_status status = made ? LK_OK : cli_out_of_memory();
    if (status == LK_OK && (curves[0].measured || curves[1].measured)) {
        const lk_series series[2] = {{.name = names[0], .x = curves[0].x, .y = curves[0].y, .count = a->n_epochs},
                                     {.name = names[1], .x = curves[1].x, .y = curves[1].y, .count = b->n_epochs}};
        const lk_line_chart chart = {
            .title = title, .x_label = "epoch", .series = series, .series_count = 2, .y_max = most};
        char *text = lk_line_chart_text(&chart, runs_text_terminal_style());
        status = text ? LK_OK : lk_error_status();
        if (text)
            printf("\n%s", text);
        lk_free(text);
        if (status == LK_OK && out)
            status = lk_line_chart_write(&chart, out);
    } else if (status == LK_OK && out) {
        status = runs_text_nothing_to_write(out);
    }
    for (int i = 0; i < 2; i++) {
        free(curves[i].x);
        free(curves[i].y);
    }
    return status;
}

static bool runs_text_is_evaluated(const lk_run *run)
{
    for (int64_t i = 0; i < run->n_epochs; i++)
        if (!isnan(run->epochs[i].val_accuracy))
            return true;
    return false;
}

static lk_status compare_runs(const lk_run *a, const lk_run *b, const char *out)
{
    char paths[2][4200];
    cli_run_name(a->path, paths[0], sizeof paths[0]);
    cli_run_name(b->path, paths[1], sizeof paths[1]);
    const char *const names[2] = {paths[0], paths[1]};
    runs_text_comparison_print_row("", paths[0], paths[1]);
    if (runs_text_comparison_print_differences(a, b) == 0)
        puts("  no setting differs");
    putchar('\n');
    runs_text_comparison_print_results(a, b);
    bool evaluated = runs_text_is_evaluated(a) && runs_text_is_evaluated(b);
    lk_status status = runs_text_draw_curves(
        a, b, names, evaluated ? "validation accuracy" : "training accuracy",
        evaluated ? offsetof(lk_run_epoch, val_accuracy) : offsetof(lk_run_epoch, train_accuracy), 1, out);
    if (status == LK_OK)
        status = runs_text_draw_curves(
            a, b, names, evaluated ? "validation loss" : "training loss",
            evaluated ? offsetof(lk_run_epoch, val_loss) : offsetof(lk_run_epoch, train_loss), 0, NULL);
    return status;
}

int cli_compare_runs(const char *path_a, const char *path_b, const char *out)
{
    lk_run *a = NULL, *b = NULL;
    lk_status status = lk_run_read(path_a, &a);
    if (status == LK_OK)
        status = lk_run_read(path_b, &b);
    if (status == LK_OK)
        status = compare_runs(a, b, out);
    lk_run_release(a);
    lk_run_release(b);
    if (status == LK_OK)
        return 0;
    return lk_error_status() != LK_OK ? cli_fail() : 1;
}
