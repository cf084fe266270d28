/* Draws losses and accuracies in the terminal as training goes on.
 *
 * The drawing stands between the lines that other callbacks print: it is taken away when an epoch ends, before they
 * print theirs, and drawn again below them when the next epoch begins. */
#include "lockstep/callbacks.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/callbacks/history.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 78, ROWS = 16, LEAST_COLUMNS = 24, LEAST_ROWS = 8, OTHER_LINES = 4 };

typedef struct live_plot {
    FILE *stream;
    bool in_place; /* the stream is a terminal with room */
    lk_text_style style;
    int64_t epochs; /* planned */
    int drawn;      /* lines of the drawing that are on the screen */
    lk__history history;
} live_plot;

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    live_plot *p = self;
    lk_text_style terminal = lk_text_style_of(p->stream);
    p->epochs = lk_trainer_plan(trainer)->epochs;
    p->drawn = 0;
    p->style = (lk_text_style){.columns = COLUMNS, .rows = ROWS, .ascii = terminal.ascii};
    p->in_place = terminal.columns >= LEAST_COLUMNS && terminal.rows >= LEAST_ROWS + OTHER_LINES;
    if (!p->in_place)
        return LK_OK;
    p->style.colour = terminal.colour;
    if (terminal.columns < COLUMNS)
        p->style.columns = terminal.columns;
    if (terminal.rows < ROWS + OTHER_LINES)
        p->style.rows = terminal.rows - OTHER_LINES;
    return LK_OK;
}

static lk_status draw(live_plot *p)
{
    lk_series series[LK_HISTORY_LINES];
    lk_line_chart chart = lk__history_chart(&p->history, series);
    chart.x_min = 1;
    chart.x_max = (double)p->epochs;
    char *text = lk_line_chart_text(&chart, p->style);
    if (!text)
        return lk_error_status();
    fputs(text, p->stream);
    fflush(p->stream);
    lk_free(text);
    p->drawn = p->style.rows;
    return LK_OK;
}

/* Where the drawing stood, another callback's bar may stand in the line below it. */
static void erase(live_plot *p)
{
    if (p->drawn > 0)
        fprintf(p->stream, "\r\033[%dA\033[J", p->drawn);
    fflush(p->stream);
    p->drawn = 0;
}

static lk_status epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    (void)trainer, (void)epoch;
    live_plot *p = self;
    return p->in_place && p->history.measured && !p->drawn ? draw(p) : LK_OK;
}

static lk_status epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    live_plot *p = self;
    erase(p);
    return lk__history_add(&p->history, report);
}

/* A drawing that still stands, of an epoch that did not end, is the last. */
static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    live_plot *p = self;
    return p->history.measured && !p->drawn ? draw(p) : LK_OK;
}

static lk_status save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const live_plot *p = self;
    lk__history_save(&p->history, state);
    return LK_OK;
}

static lk_status resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    live_plot *p = self;
    return lk__history_resume(&p->history, state);
}

static void release(void *self)
{
    live_plot *p = self;
    lk__history_free(&p->history);
    lk__free(p);
}

lk_callback lk_callback_live_plot(FILE *stream)
{
    live_plot *p = lk__calloc(1, sizeof *p);
    if (!p)
        return (lk_callback){0};
    p->stream = stream;
    return (lk_callback){.name = "live plot",
                         .train_begin = train_begin,
                         .epoch_begin = epoch_begin,
                         .epoch_end = epoch_end,
                         .save = save,
                         .resume = resume,
                         .train_end = train_end,
                         .release = release,
                         .self = p};
}
