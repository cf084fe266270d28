/* Draws losses and accuracies into files: those of training by step, those of the evaluation by epoch. */
#include "base/mem.h"
#include "base/status.h"
#include "io/charts/line_chart.h"
#include "lockstep/callbacks.h"
#include "train/callbacks/history.h"
#include "train/callbacks/step_points.h"

#include <stdio.h>

enum { POINTS = 64, TITLE = 256, WIDTH = 560, PARTS = 100 };

enum { STEP_EPOCH, STEP_LOSS, STEP_ACCURACY, STEP_COLUMNS };

typedef struct curves {
    char *paths[2]; /* SVG, PNG; NULL: do not write this one */
    lk_history history;
    lk_step_points points;
    int64_t n_steps, capacity;
    double *steps[STEP_COLUMNS]; /* [n_steps]; NaN: not measured */
} curves;

static lk_status curves_add_step(curves *c, const double row[STEP_COLUMNS])
{
    int64_t capacity = c->capacity;
    for (int i = 0; i < STEP_COLUMNS; i++) {
        capacity = c->capacity;
        LK_TRY(LK_GROW(c->steps[i], &capacity, c->n_steps + 1));
        c->steps[i][c->n_steps] = row[i];
    }
    c->capacity = capacity;
    c->n_steps++;
    return LK_OK;
}

static lk_status curves_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    curves *c = self;
    lk_step_point point;
    if (!lk__step_points_add(&c->points, report, &point))
        return LK_OK;
    return curves_add_step(c, (double[]){point.epoch, lk_mean_value(point.loss), lk_mean_value(point.accuracy)});
}

/* Puts the losses left and the accuracies right, each with an axis of its own. */
static lk_status curves_draw(const curves *c, const lk_plan *plan)
{
    static const int trained[] = {LK_HISTORY_TRAIN_LOSS, LK_HISTORY_TRAIN_ACCURACY};
    static const int evaluated[] = {LK_HISTORY_VAL_LOSS, LK_HISTORY_VAL_ACCURACY};
    static const char *const names[] = {"loss", "accuracy"};
    lk_series series[2][2];
    lk_line_chart charts[2];
    double joined[2][2][PARTS];
    char title[TITLE];
    for (int i = 0; i < 2; i++) {
        const lk_history *h = &c->history;
        series[i][0] =
            (lk_series){"training", c->steps[STEP_EPOCH], c->steps[i ? STEP_ACCURACY : STEP_LOSS], c->n_steps, false};
        if (c->n_steps > 0 && c->steps[STEP_EPOCH][c->n_steps - 1] > 0)
            lk__series_join(&series[i][0], PARTS, 0, c->steps[STEP_EPOCH][c->n_steps - 1], joined[i][0], joined[i][1]);
        if (c->n_steps == 0) /* a checkpoint from before steps were kept */
            series[i][0] = (lk_series){"training", h->epoch, h->line[trained[i]], h->count, false};
        series[i][1] = (lk_series){"validation", h->epoch, h->line[evaluated[i]], h->count, false};
        charts[i] = (lk_line_chart){.x_label = "epoch",
                                    .y_label = names[i],
                                    .series = series[i],
                                    .series_count = 2,
                                    .y_max = i ? 1 : LK_HISTORY_LEAST_LOSS,
                                    .width = WIDTH};
    }
    snprintf(title, sizeof title, "%.100s on %.100s", plan->model, plan->data);
    for (int i = 0; i < 2; i++)
        if (c->paths[i])
            LK_TRY(lk_line_charts_write(title, charts, 2, c->paths[i]));
    return LK_OK;
}

static lk_status curves_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    curves *c = self;
    LK_TRY(lk__history_add(&c->history, report));
    return c->history.measured ? curves_draw(c, lk_trainer_plan(trainer)) : LK_OK;
}

static const char *const step_names[STEP_COLUMNS] = {
    [STEP_EPOCH] = "step_epoch", [STEP_LOSS] = "step_loss", [STEP_ACCURACY] = "step_accuracy"};

static lk_status curves_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const curves *c = self;
    lk__history_save(&c->history, state);
    lk__step_points_save(&c->points, state);
    for (int i = 0; i < STEP_COLUMNS; i++)
        lk_state_set(state, step_names[i], c->steps[i], c->n_steps);
    return LK_OK;
}

static lk_status curves_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    curves *c = self;
    int64_t count = lk_state_get(state, step_names[0], NULL, 0);
    LK_TRY(lk__history_resume(&c->history, state));
    lk__step_points_resume(&c->points, state);
    c->n_steps = 0;
    for (int i = 0; count > 0 && i < STEP_COLUMNS; i++) {
        int64_t capacity = c->capacity;
        LK_TRY(LK_GROW(c->steps[i], &capacity, count));
        if (lk_state_get(state, step_names[i], c->steps[i], count) != count)
            LK_FAIL(LK_ERR_FORMAT, "the checkpoint does not hold the steps' losses and accuracies");
        if (i == STEP_COLUMNS - 1) {
            c->capacity = capacity;
            c->n_steps = count;
        }
    }
    return LK_OK;
}

static void curves_release(void *self)
{
    curves *c = self;
    lk__history_free(&c->history);
    for (int i = 0; i < STEP_COLUMNS; i++)
        lk__free(c->steps[i]);
    lk__free(c->paths[0]);
    lk__free(c->paths[1]);
    lk__free(c);
}

lk_callback lk_callback_curves(const char *svg_path, const char *png_path)
{
    curves *c = lk__calloc(1, sizeof *c);
    if (!c)
        return (lk_callback){0};
    c->points.every = POINTS;
    c->paths[0] = svg_path ? lk__strdup(svg_path) : NULL;
    c->paths[1] = png_path ? lk__strdup(png_path) : NULL;
    if ((svg_path && !c->paths[0]) || (png_path && !c->paths[1])) {
        curves_release(c);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "curves",
                         .step_end = curves_step_end,
                         .epoch_end = curves_epoch_end,
                         .save = curves_save,
                         .resume = curves_resume,
                         .release = curves_release,
                         .self = c};
}
