/* Writes event files for TensorBoard: scalars by epoch and by step, histograms, and the
 * settings as text. */
#include "base/mem.h"
#include "base/status.h"
#include "io/records/events.h"
#include "lockstep/callbacks.h"
#include "train/callbacks/step_points.h"
#include "train/checkpoint/callback_state.h"
#include "train/plan/settings.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct tensorboard {
    char *dir;
    lk_event_writer *events; /* of the current training */
    bool resumed;
    lk_step_points points;
    int64_t gradients_epoch; /* the epoch whose gradients were written before its end; 0: none */
    float *values;           /* [capacity]: a tensor's elements */
    int64_t capacity;
} tensorboard;

/* --- settings ----------------------------------------------------------------------------------------------------- */

/* Writes a row of a Markdown table. A bar in a cell is escaped. */
static lk_status tensorboard_print_setting(void *user, const lk_field *setting)
{
    FILE *table = user;
    fprintf(table, "| %s | ", setting->name);
    for (const char *text = setting->text; *text; text++) {
        if (*text == '|')
            fputc('\\', table);
        fputc(*text, table);
    }
    fputs(" |\n", table);
    return LK_OK;
}

static lk_status tensorboard_write_settings(tensorboard *t, const lk_trainer *trainer)
{
    char *markdown = NULL;
    size_t size;
    FILE *table = open_memstream(&markdown, &size);
    if (!table)
        LK_FAIL(LK_ERR_MEMORY, "TensorBoard: no memory for the settings");
    fputs("| setting | value |\n|---|---|\n", table);
    lk_status status = lk__settings_visit(trainer, tensorboard_print_setting, table);
    bool complete = fclose(table) == 0;
    if (status == LK_OK && complete)
        status = lk_event_text(t->events, "settings", 0, markdown, 0);
    free(markdown); /* allocated by open_memstream, not by lk__calloc */
    if (status == LK_OK && !complete)
        LK_FAIL(LK_ERR_MEMORY, "TensorBoard: no memory for the settings");
    return status;
}

/* --- scalars ------------------------------------------------------------------------------------------------------ */

/* Writes no point if nothing was measured. */
static lk_status tensorboard_write_mean(tensorboard *t, const char *tag, int64_t epoch, lk_mean mean)
{
    return mean.count ? lk_event_scalar(t->events, tag, epoch, lk_mean_value(mean), 0) : LK_OK;
}

static lk_status tensorboard_write_scalars(tensorboard *t, const lk_epoch_report *report)
{
    const lk_metrics *train = &report->train, *val = &report->val;
    LK_TRY(tensorboard_write_mean(t, "loss/train", report->epoch, train->loss));
    LK_TRY(tensorboard_write_mean(t, "loss/val", report->epoch, val->loss));
    LK_TRY(tensorboard_write_mean(t, "accuracy/train", report->epoch, train->accuracy));
    LK_TRY(tensorboard_write_mean(t, "accuracy/val", report->epoch, val->accuracy));
    LK_TRY(tensorboard_write_mean(t, "top_k/train", report->epoch, train->top_k));
    LK_TRY(tensorboard_write_mean(t, "top_k/val", report->epoch, val->top_k));
    LK_TRY(lk_event_scalar(t->events, "learning_rate", report->epoch, report->rate, 0));
    return lk_event_scalar(t->events, "images_per_second", report->epoch, report->images_per_second, 0);
}

/* The step of these points is the training's, while that of the others is the epoch. */
static lk_status tensorboard_write_point(tensorboard *t, const lk_step_point *point)
{
    LK_TRY(tensorboard_write_mean(t, "steps/loss", point->step, point->loss));
    LK_TRY(tensorboard_write_mean(t, "steps/accuracy", point->step, point->accuracy));
    return lk_event_scalar(t->events, "steps/rate", point->step, point->rate, 0);
}

/* --- histograms --------------------------------------------------------------------------------------------------- */

static lk_status tensorboard_write_histogram(tensorboard *t, const char *group, const char *name, int64_t epoch,
                                             lk_tensor *tensor)
{
    int64_t count = lk_tensor_count(tensor);
    if (count > t->capacity) {
        float *values = lk__realloc(t->values, (size_t)count, sizeof *values);
        if (!values)
            return LK_ERR_MEMORY;
        t->values = values;
        t->capacity = count;
    }
    char tag[512];
    snprintf(tag, sizeof tag, "%s/%s", group, name);
    LK_TRY(lk_tensor_read(tensor, t->values, (size_t)count * sizeof *t->values));
    return lk_event_histogram(t->events, tag, epoch, t->values, count, 0);
}

static lk_status tensorboard_write_weights(tensorboard *t, const lk_trainer *trainer, int64_t epoch)
{
    const lk_model *model = lk_trainer_model(trainer);
    lk_tensor *const *variables = lk_trainer_variables(trainer, 0);
    for (int i = 0; i < lk_model_variable_count(model); i++)
        LK_TRY(tensorboard_write_histogram(t, "weights", lk_model_variable_name(model, i), epoch, variables[i]));
    return LK_OK;
}

static lk_status tensorboard_write_gradients(tensorboard *t, const lk_trainer *trainer, int64_t epoch)
{
    const lk_model *model = lk_trainer_model(trainer);
    lk_tensor *const *gradients = lk_trainer_gradients(trainer);
    for (int i = 0; gradients && i < lk_model_parameter_count(model); i++)
        if (gradients[i])
            LK_TRY(tensorboard_write_histogram(t, "gradients", lk_model_variable_name(model, i), epoch, gradients[i]));
    return LK_OK;
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static lk_status tensorboard_train_begin(void *self, lk_trainer *trainer)
{
    tensorboard *t = self;
    bool resumed = t->resumed;
    t->resumed = false;
    if (resumed)
        return LK_OK;
    t->gradients_epoch = 0;
    t->points.open = (lk_step_point){0};
    lk_event_writer_release(t->events);
    t->events = lk_event_writer_new(t->dir);
    return t->events ? tensorboard_write_settings(t, trainer) : lk_error_status();
}

static lk_status tensorboard_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    tensorboard *t = self;
    lk_step_point point;
    return lk__step_points_add(&t->points, report, &point) ? tensorboard_write_point(t, &point) : LK_OK;
}

static lk_status tensorboard_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    tensorboard *t = self;
    LK_TRY(tensorboard_write_scalars(t, report));
    LK_TRY(tensorboard_write_weights(t, trainer, report->epoch));
    return t->gradients_epoch == report->epoch ? LK_OK : tensorboard_write_gradients(t, trainer, report->epoch);
}

/* If training is interrupted after an epoch's last update, the epoch ends in the run that resumes it. Checkpoints hold
 * no gradients, so they are written now. */
static lk_status tensorboard_rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    tensorboard *t = self;
    if (!report->interrupted || report->batch < lk_trainer_plan(trainer)->steps_per_epoch ||
        !lk_trainer_gradients(trainer))
        return LK_OK;
    t->gradients_epoch = report->epoch;
    return tensorboard_write_gradients(t, trainer, report->epoch);
}

static lk_status tensorboard_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    tensorboard *t = self;
    lk_step_point point;
    if (lk__step_points_end(&t->points, &point))
        LK_TRY(tensorboard_write_point(t, &point));
    return lk_event_writer_flush(t->events);
}

static lk_status tensorboard_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const tensorboard *t = self;
    if (!t->events)
        return LK_OK;
    const char *path = lk_event_writer_path(t->events), *slash = strrchr(path, '/');
    lk_state_set_text(state, "file", slash ? slash + 1 : path);
    lk__step_points_save(&t->points, state);
    lk_state_set(state, "with_gradients", (double[]){(double)t->gradients_epoch}, 1);
    lk__state_set_mark(state, lk__event_writer_mark(t->events));
    return LK_OK;
}

/* If the file is not the one that was marked, train_begin starts a new one. */
static lk_status tensorboard_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    tensorboard *t = self;
    char path[PATH_MAX];
    int64_t bytes;
    double with_gradients = 0;
    const char *file = lk_state_get_text(state, "file");
    bool is_name = file && !strchr(file, '/') && snprintf(path, sizeof path, "%s/%s", t->dir, file) < PATH_MAX;
    if (!is_name || !lk__state_has_mark(state, path, &bytes))
        return LK_OK;
    lk_event_writer_release(t->events);
    t->events = lk__event_writer_reopen(path, bytes);
    t->resumed = t->events != NULL;
    lk__step_points_resume(&t->points, state);
    lk_state_get(state, "with_gradients", &with_gradients, 1);
    t->gradients_epoch = lk__state_integer(with_gradients);
    return t->events ? LK_OK : lk_error_status();
}

static void tensorboard_release(void *self)
{
    tensorboard *t = self;
    lk_event_writer_release(t->events);
    lk__free(t->values);
    lk__free(t->dir);
    lk__free(t);
}

lk_callback lk_callback_tensorboard(const char *dir)
{
    tensorboard *t = lk__calloc(1, sizeof *t);
    if (!t)
        return (lk_callback){0};
    t->dir = lk__strdup(dir);
    t->points.every = LK_STEP_POINTS;
    if (!t->dir) {
        tensorboard_release(t);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "TensorBoard",
                         .train_begin = tensorboard_train_begin,
                         .step_end = tensorboard_step_end,
                         .epoch_end = tensorboard_epoch_end,
                         .rest = tensorboard_rest,
                         .save = tensorboard_save,
                         .resume = tensorboard_resume,
                         .train_end = tensorboard_train_end,
                         .release = tensorboard_release,
                         .self = t};
}
