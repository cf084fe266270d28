/* Shows the progress of an epoch and of its evaluation: a bar that is redrawn on a terminal, lines on other streams. */
#include "base/mem.h"
#include "lockstep/callbacks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct progress_bar {
    FILE *stream;
    bool terminal;
    bool drawn;        /* the current line holds a bar */
    double last_shown; /* in seconds since the pass began */
} progress_bar;

/* The position in a pass over the data. */
typedef struct position {
    int64_t epoch, step, steps;
    const char *what; /* NULL: training */
} position;

static void progress_bar_clear(progress_bar *bar)
{
    if (bar->drawn) {
        fputs("\r\033[K", bar->stream);
        fflush(bar->stream);
    }
    bar->drawn = false;
}

static void progress_bar_format_seconds(char *text, size_t size, double seconds)
{
    long whole = lround(seconds);
    if (whole >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, size, "%ld:%02ld", whole / 60, whole % 60);
}

/* The bar fills what the texts before and after it leave of a line; if that is too little, there is no bar. The line is
 * cut to the terminal's width, because a line that wraps could not be redrawn. */
static void progress_bar_draw(progress_bar *bar, const char *before, const position *at, const char *after)
{
    enum { WIDEST = 24, NARROWEST = 8 };
    char blocks[WIDEST + 4] = "";
    struct winsize size;
    bool known = ioctl(fileno(bar->stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    int columns = (known ? size.ws_col : 80) - 1;
    int width = columns - (int)strlen(before) - (int)strlen(after) - 3;
    if (width > WIDEST)
        width = WIDEST;
    if (width >= NARROWEST) {
        int filled = (int)(at->step * width / at->steps);
        blocks[0] = '[';
        memset(blocks + 1, '#', (size_t)filled);
        memset(blocks + 1 + filled, '.', (size_t)(width - filled));
        memcpy(blocks + 1 + width, "] ", 3);
    }
    char line[320];
    snprintf(line, sizeof line, "%s%s%s", before, blocks, after);
    fprintf(bar->stream, "\r\033[K%.*s", columns, line);
    bar->drawn = true;
}

static void progress_bar_show(progress_bar *bar, const lk_trainer *trainer, const position *at, const char *numbers)
{
    char before[80], after[200];
    snprintf(before, sizeof before, "epoch %lld/%lld %s", (long long)at->epoch,
             (long long)lk_trainer_plan(trainer)->epochs, at->what ? at->what : "");
    snprintf(after, sizeof after, "%lld/%lld%s", (long long)at->step, (long long)at->steps, numbers);
    if (bar->terminal)
        progress_bar_draw(bar, before, at, after);
    else
        fprintf(bar->stream, "%s%s%s\n", before, at->what ? "" : " step ", after);
    fflush(bar->stream);
}

/* Limits updates to ten a second on a terminal and one a minute on other streams. */
static bool progress_bar_is_due(progress_bar *bar, const position *at, double seconds)
{
    if (at->step == 1)
        bar->last_shown = 0;
    bool last = bar->terminal && at->step == at->steps;
    if (!last && seconds - bar->last_shown < (bar->terminal ? 0.1 : 60))
        return false;
    bar->last_shown = seconds;
    return true;
}

static lk_status progress_bar_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)stop;
    progress_bar *bar = self;
    position at = {.epoch = report->epoch, .step = report->step, .steps = report->steps};
    if (!progress_bar_is_due(bar, &at, report->seconds))
        return LK_OK;
    const lk_plan *plan = lk_trainer_plan(trainer);
    char numbers[160], loss[32] = "", eta[32];
    double speed = report->seconds > 0 ? (double)report->samples / report->seconds : 0;
    /* The ETA covers training only: how long evaluation takes is not known before the first one. */
    int64_t left = plan->train_samples * (plan->epochs - report->epoch + 1) - report->samples;
    progress_bar_format_seconds(eta, sizeof eta, speed > 0 ? (double)left / speed : 0);
    if (report->so_far.loss.count)
        snprintf(loss, sizeof loss, "  loss %.4f", lk_mean_value(report->so_far.loss));
    snprintf(numbers, sizeof numbers, "%s  %.0f images/s  ETA %s", loss, speed, eta);
    progress_bar_show(bar, trainer, &at, numbers);
    return LK_OK;
}

/* Clears the bar at the last step, because nothing else reports the end of an evaluation outside of fit. */
static lk_status progress_bar_eval_step(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    progress_bar *bar = self;
    position at = {.epoch = report->epoch,
                   .step = report->step,
                   .steps = report->steps,
                   .what = report->measures_statistics ? "batch-norm " : "evaluation "};
    if (report->step == report->steps)
        progress_bar_clear(bar);
    else if (progress_bar_is_due(bar, &at, report->seconds))
        progress_bar_show(bar, trainer, &at, "");
    return LK_OK;
}

static lk_status progress_bar_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)report, (void)stop;
    progress_bar_clear(self);
    return LK_OK;
}

static lk_status progress_bar_train_end(void *self, lk_trainer *trainer, const lk_train_result *result,
                                        lk_status status)
{
    (void)trainer, (void)result, (void)status;
    progress_bar_clear(self);
    return LK_OK;
}

static void progress_bar_release(void *self)
{
    progress_bar_clear(self);
    lk__free(self);
}

lk_callback lk_callback_progress_bar(FILE *stream)
{
    progress_bar *bar = lk__calloc(1, sizeof *bar);
    if (!bar)
        return (lk_callback){0};
    bar->stream = stream;
    const char *kind = getenv("TERM");
    bar->terminal = isatty(fileno(stream)) && kind && strcmp(kind, "dumb") != 0;
    return (lk_callback){.name = "progress bar",
                         .step_end = progress_bar_step_end,
                         .eval_step = progress_bar_eval_step,
                         .epoch_end = progress_bar_epoch_end,
                         .train_end = progress_bar_train_end,
                         .release = progress_bar_release,
                         .self = bar};
}
