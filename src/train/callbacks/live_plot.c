/* Draws losses and accuracies in the terminal during training.
 *
 * The chart stays below the lines that other callbacks print: it is erased when an epoch ends, before they print, and
 * drawn again when the next epoch begins. */
#include "base/mem.h"
#include "base/minmax.h"
#include "lockstep/callbacks.h"
#include "train/callbacks/history.h"

enum { COLUMNS = 78, ROWS = 16, LEAST_COLUMNS = 24, LEAST_ROWS = 8, OTHER_LINES = 4 };

typedef struct live_plot {
    FILE *stream;
    bool redraws; /* the stream is a terminal that is large enough; otherwise only the end is drawn */
    lk_text_style style;
    int64_t epochs; /* planned */
    int drawn;      /* lines of the chart on the screen; 0: none */
    lk_history history;
} live_plot;

static lk_status live_plot_train_begin(void *self, lk_trainer *trainer)
{
    live_plot *p = self;
    lk_text_style terminal = lk_text_style_of(p->stream);
    p->epochs = lk_trainer_plan(trainer)->epochs;
    p->drawn = 0;
    p->style = (lk_text_style){.columns = COLUMNS, .rows = ROWS, .ascii = terminal.ascii};
    p->redraws = terminal.columns >= LEAST_COLUMNS && terminal.rows >= LEAST_ROWS + OTHER_LINES;
    if (!p->redraws)
        return LK_OK;
    p->style.color = terminal.color;
    p->style.columns = (int)lk__min(terminal.columns, COLUMNS);
    p->style.rows = (int)lk__min(terminal.rows - OTHER_LINES, ROWS);
    return LK_OK;
}

static lk_status live_plot_draw(live_plot *p)
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

/* Clears to the end of the screen, because a progress bar may be in the line below the chart. */
static void live_plot_erase(live_plot *p)
{
    if (p->drawn > 0)
        fprintf(p->stream, "\r\033[%dA\033[J", p->drawn);
    fflush(p->stream);
    p->drawn = 0;
}

static lk_status live_plot_epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    (void)trainer, (void)epoch;
    live_plot *p = self;
    return p->redraws && p->history.measured && !p->drawn ? live_plot_draw(p) : LK_OK;
}

static lk_status live_plot_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    live_plot *p = self;
    live_plot_erase(p);
    return lk__history_add(&p->history, report);
}

/* If the last epoch did not end, its chart is still on the screen and stays. */
static lk_status live_plot_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    live_plot *p = self;
    return p->history.measured && !p->drawn ? live_plot_draw(p) : LK_OK;
}

static lk_status live_plot_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const live_plot *p = self;
    lk__history_save(&p->history, state);
    return LK_OK;
}

static lk_status live_plot_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    live_plot *p = self;
    return lk__history_resume(&p->history, state);
}

static void live_plot_release(void *self)
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
                         .train_begin = live_plot_train_begin,
                         .epoch_begin = live_plot_epoch_begin,
                         .epoch_end = live_plot_epoch_end,
                         .save = live_plot_save,
                         .resume = live_plot_resume,
                         .train_end = live_plot_train_end,
                         .release = live_plot_release,
                         .self = p};
}
