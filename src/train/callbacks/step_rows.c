/* Writes rows of CSV or JSON with losses, accuracies and rates by step. */
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/callbacks.h"
#include "train/callbacks/row_file.h"
#include "train/callbacks/step_points.h"

typedef struct step_rows {
    lk_row_file file;
    lk_step_points points;
} step_rows;

enum { COLUMNS = 6 };

static lk_status step_rows_write(step_rows *rows, const lk_step_point *point)
{
    const lk_field row[COLUMNS] = {
        LK_INT("step", point->step),
        LK_REAL("epoch", point->epoch),
        lk__mean_field("train_loss", point->loss),
        lk__mean_field("train_accuracy", point->accuracy),
        LK_REAL("rate", point->rate),
        LK_INT("skipped_steps", point->skipped),
    };
    return point->step ? lk_row_write(rows->file.writer, row, COLUMNS) : lk_row_names(rows->file.writer, row, COLUMNS);
}

static lk_status step_rows_train_begin(void *self, lk_trainer *trainer)
{
    (void)trainer;
    step_rows *rows = self;
    LK_TRY(lk__row_file_open(&rows->file));
    return step_rows_write(rows, &(lk_step_point){0});
}

static lk_status step_rows_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    step_rows *rows = self;
    lk_step_point point;
    return lk__step_points_add(&rows->points, report, &point) ? step_rows_write(rows, &point) : LK_OK;
}

/* A training that is resumed removes this row again: a checkpoint's mark is before it. */
static lk_status step_rows_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    step_rows *rows = self;
    lk_step_point point;
    return lk__step_points_end(&rows->points, &point) ? step_rows_write(rows, &point) : LK_OK;
}

static lk_status step_rows_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const step_rows *rows = self;
    lk__step_points_save(&rows->points, state);
    lk__row_file_save(&rows->file, state);
    return LK_OK;
}

/* If the file is not the one that was marked, train_begin starts a new one. */
static lk_status step_rows_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    step_rows *rows = self;
    lk__step_points_resume(&rows->points, state);
    return lk__row_file_resume(&rows->file, state);
}

static void step_rows_release(void *self)
{
    step_rows *rows = self;
    lk__row_file_free(&rows->file);
    lk__free(rows);
}

lk_callback lk_callback_steps(const char *path, lk_row_format format)
{
    step_rows *rows = lk__calloc(1, sizeof *rows);
    if (!rows)
        return (lk_callback){0};
    rows->points.every = LK_STEP_POINTS;
    if (lk__row_file_new(&rows->file, path, format) != LK_OK) {
        step_rows_release(rows);
        return (lk_callback){0};
    }
    return (lk_callback){.name = format == LK_ROWS_CSV ? "steps as CSV" : "steps as JSON lines",
                         .train_begin = step_rows_train_begin,
                         .step_end = step_rows_step_end,
                         .save = step_rows_save,
                         .resume = step_rows_resume,
                         .train_end = step_rows_train_end,
                         .release = step_rows_release,
                         .self = rows};
}
