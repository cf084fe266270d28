/* Writes a CSV file with a row for each epoch. */
#include "base/mem.h"
#include "io/records/row_writer.h"
#include "lockstep/callbacks.h"
#include "train/checkpoint/callback_state.h"

#include <string.h>

typedef struct epoch_csv {
    char *path;
    lk_row_writer *writer; /* NULL: not open yet */
} epoch_csv;

/* Makes an empty cell if nothing was measured. */
static lk_field epoch_csv_mean_field(const char *name, lk_mean value)
{
    return value.count ? LK_REAL(name, lk_mean_value(value)) : LK_NONE(name);
}

/* The columns of a set of samples. */
#define METRIC_FIELDS(set, metrics)                                                                               \
    epoch_csv_mean_field(set "_loss", (metrics).loss), epoch_csv_mean_field(set "_accuracy", (metrics).accuracy), \
        epoch_csv_mean_field(set "_top_k", (metrics).top_k)

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
    epoch_csv *csv = self;
    lk_field row[COLUMNS];
    if (!csv->writer)
        csv->writer = lk_row_writer_new(csv->path, LK_ROWS_CSV, false);
    if (!csv->writer)
        return lk_error_status();
    epoch_csv_make_row(&(lk_epoch_report){0}, row);
    return lk_row_names(csv->writer, row, COLUMNS);
}

static lk_status epoch_csv_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    epoch_csv *csv = self;
    lk_field row[COLUMNS];
    epoch_csv_make_row(report, row);
    return lk_row_write(csv->writer, row, COLUMNS);
}

static lk_status epoch_csv_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const epoch_csv *csv = self;
    if (csv->writer)
        lk__state_set_mark(state, lk__row_writer_mark(csv->writer));
    return LK_OK;
}

/* If the file is not the one that was marked, train_begin starts a new one. */
static lk_status epoch_csv_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    epoch_csv *csv = self;
    int64_t bytes;
    if (csv->writer || !lk__state_has_mark(state, csv->path, &bytes))
        return LK_OK;
    csv->writer = lk__row_writer_reopen(csv->path, LK_ROWS_CSV, bytes);
    return csv->writer ? LK_OK : lk_error_status();
}

static void epoch_csv_release(void *self)
{
    epoch_csv *csv = self;
    lk_row_writer_release(csv->writer);
    lk__free(csv->path);
    lk__free(csv);
}

lk_callback lk_callback_csv(const char *path)
{
    epoch_csv *csv = lk__calloc(1, sizeof *csv);
    if (!csv)
        return (lk_callback){0};
    csv->path = lk__strdup(path);
    if (!csv->path) {
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
