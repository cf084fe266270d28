/* Writes a CSV file with a row for each epoch. */
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/callbacks.h"
#include "train/callbacks/row_file.h"

#include <string.h>

/* The columns of a set of samples. */
#define METRIC_FIELDS(set, metrics)                                                                   \
    lk__mean_field(set "_loss", (metrics).loss), lk__mean_field(set "_accuracy", (metrics).accuracy), \
        lk__mean_field(set "_top_k", (metrics).top_k)

enum { COLUMNS = 13 };

static void epoch_csv_make_row(const lk_epoch_report *report, lk_field row[COLUMNS])
{
    const lk_field fields[COLUMNS] = {
        LK_INT("epoch", report->epoch),
        LK_INT("step", report->steps),
        METRIC_FIELDS("train", report->train),
        METRIC_FIELDS("val", report->val),
        LK_REAL("rate", report->rate),
        LK_REAL("seconds", report->seconds),
        LK_REAL("total_seconds", report->total_seconds),
        LK_REAL("images_per_second", report->images_per_second),
        LK_INT("skipped_steps", report->skipped_steps),
    };
    memcpy(row, fields, sizeof fields);
}

/* Writes the names of the columns at once, so that a training that ends in its first epoch leaves a table too. */
static lk_status epoch_csv_train_begin(void *self, lk_trainer *trainer)
{
    (void)trainer;
    lk_row_file *csv = self;
    lk_field row[COLUMNS];
    LK_TRY(lk__row_file_open(csv));
    epoch_csv_make_row(&(lk_epoch_report){0}, row);
    return lk_row_names(csv->writer, row, COLUMNS);
}

static lk_status epoch_csv_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    const lk_row_file *csv = self;
    lk_field row[COLUMNS];
    epoch_csv_make_row(report, row);
    return lk_row_write(csv->writer, row, COLUMNS);
}

static lk_status epoch_csv_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    lk__row_file_save(self, state);
    return LK_OK;
}

/* If the file is not the one that was marked, train_begin starts a new one. */
static lk_status epoch_csv_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    return lk__row_file_resume(self, state);
}

static void epoch_csv_release(void *self)
{
    lk__row_file_free(self);
    lk__free(self);
}

lk_callback lk_callback_csv(const char *path)
{
    lk_row_file *csv = lk__calloc(1, sizeof *csv);
    if (!csv)
        return (lk_callback){0};
    if (lk__row_file_new(csv, path, LK_ROWS_CSV) != LK_OK) {
        epoch_csv_release(csv);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "CSV",
                         .train_begin = epoch_csv_train_begin,
                         .epoch_end = epoch_csv_epoch_end,
                         .save = epoch_csv_save,
                         .resume = epoch_csv_resume,
                         .release = epoch_csv_release,
                         .self = csv};
}
