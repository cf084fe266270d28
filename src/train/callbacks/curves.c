/* Draws losses and accuracies against epochs into files. */
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/callbacks.h"
#include "train/callbacks/history.h"

typedef struct curves {
    char *paths[2]; /* SVG, PNG; NULL: do not write this one */
    lk_history history;
} curves;

static lk_status curves_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    curves *c = self;
    LK_TRY(lk__history_add(&c->history, report));
    if (!c->history.measured)
        return LK_OK;
    lk_series series[LK_HISTORY_LINES];
    lk_line_chart chart = lk__history_chart(&c->history, series);
    chart.title = lk_trainer_plan(trainer)->model;
    for (int i = 0; i < 2; i++)
        if (c->paths[i])
            LK_TRY(lk_line_chart_write(&chart, c->paths[i]));
    return LK_OK;
}

static lk_status curves_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const curves *c = self;
    lk__history_save(&c->history, state);
    return LK_OK;
}

static lk_status curves_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    curves *c = self;
    return lk__history_resume(&c->history, state);
}

static void curves_release(void *self)
{
    curves *c = self;
    lk__history_free(&c->history);
    lk__free(c->paths[0]);
    lk__free(c->paths[1]);
    lk__free(c);
}

lk_callback lk_callback_curves(const char *svg_path, const char *png_path)
{
    curves *c = lk__calloc(1, sizeof *c);
    if (!c)
        return (lk_callback){0};
    c->paths[0] = svg_path ? lk__strdup(svg_path) : NULL;
    c->paths[1] = png_path ? lk__strdup(png_path) : NULL;
    if ((svg_path && !c->paths[0]) || (png_path && !c->paths[1])) {
        curves_release(c);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "curves",
                         .epoch_end = curves_epoch_end,
                         .save = curves_save,
                         .resume = curves_resume,
                         .release = curves_release,
                         .self = c};
}
