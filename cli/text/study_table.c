#include "cli/text/study_table.h"

#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 8, CELL = 128 };

typedef struct table {
    int n_rows, n_columns;
    lk_study_row rows[LK_STUDY_MAX_VALUES];
    char headings[MAX_COLUMNS][CELL];
    char cells[LK_STUDY_MAX_VALUES][MAX_COLUMNS][CELL];
    bool left[MAX_COLUMNS]; /* aligned to the left */
} table;

typedef void (*write_cell_fn)(const table *t, const lk_study_row *row, char *cell);

/* --- contents of the columns -------------------------------------------------------------------------------------- */

/* Returns the number of decimals, at most 3, that gives the least mean four digits or more. */
static int study_table_decimals_of(const table *t)
{
    double least = INFINITY;
    for (int r = 0; r < t->n_rows; r++)
        least = fmin(least, t->rows[r].mean); /* fmin ignores NAN */
    return least >= 100 ? (least >= 1000 || !isfinite(least) ? 0 : 1) : least >= 10 ? 2 : 3;
}

static void study_table_cell_write_number(double value, int decimals, char *cell)
{
    if (isfinite(value))
        snprintf(cell, CELL, "%.*f", decimals, value);
    else
        snprintf(cell, CELL, "-");
}

static void study_table_cell_write_value(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    snprintf(cell, CELL, "%s", row->value);
}

static void study_table_cell_write_mean(const table *t, const lk_study_row *row, char *cell)
{
    study_table_cell_write_number(row->mean, study_table_decimals_of(t), cell);
}

/* The interval is cut at 0, because neither measure can be negative. */
static void study_table_cell_write_interval(const table *t, const lk_study_row *row, char *cell)
{
    int decimals = study_table_decimals_of(t);
    if (row->low < row->high)
        snprintf(cell, CELL, "%.*f … %.*f", decimals, fmax(row->low, 0), decimals, row->high);
    else
        snprintf(cell, CELL, "-");
}

static void study_table_cell_write_epochs(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    study_table_cell_write_number(row->epochs, row->counted > 1 ? 1 : 0, cell);
}

static void study_table_cell_write_accuracy(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    study_table_cell_write_number(row->val_accuracy, 4, cell);
}

static void study_table_cell_write_devices(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    study_table_cell_write_number(row->devices > 0 ? row->devices : NAN, 0, cell);
}

static void study_table_cell_write_shards(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    study_table_cell_write_number(row->devices > 0 ? (double)row->shards : NAN, 0, cell);
}

static void study_table_cell_write_note(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    snprintf(cell, CELL, "%s", row->note);
}

/* --- choice of columns -------------------------------------------------------------------------------------------- */

static void table_add_column(table *t, const char *heading, bool left, write_cell_fn write)
{
    int column = t->n_columns++;
    snprintf(t->headings[column], CELL, "%s", heading);
    t->left[column] = left;
    for (int r = 0; r < t->n_rows; r++)
        write(t, &t->rows[r], t->cells[r][column]);
}

static bool study_table_has_intervals(const table *t)
{
    bool has = false;
    for (int r = 0; r < t->n_rows; r++)
        has |= t->rows[r].low < t->rows[r].high;
    return has;
}

static bool study_table_has_accuracy(const table *t)
{
    bool has = false;
    for (int r = 0; r < t->n_rows; r++)
        has |= !isnan(t->rows[r].val_accuracy);
    return has;
}

static const lk_study_row *study_table_first_trained(const table *t)
{
    for (int r = 0; r < t->n_rows; r++)
        if (t->rows[r].devices > 0)
            return &t->rows[r];
    return NULL;
}

/* Returns whether the number of devices, or else of shards, differs between values. That explains some of the
 * differences in the results. */
static bool study_table_rows_differ(const table *t, bool devices)
{
    const lk_study_row *first = study_table_first_trained(t);
    for (int r = 0; first && r < t->n_rows; r++) {
        const lk_study_row *row = &t->rows[r];
        if (row->devices > 0 && (devices ? row->devices != first->devices : row->shards != first->shards))
            return true;
    }
    return false;
}

static void table_fill(table *t, const lk_study *study)
{
    bool soon = lk_study_get_measure(study) == LK_MEASURE_TIME_TO_ACCURACY;
    const char *setting = lk_study_setting(study);
    t->n_rows = lk_study_row_count(study);
    for (int r = 0; r < t->n_rows; r++)
        t->rows[r] = lk_study_row_at(study, r);
    table_add_column(t, setting, true, study_table_cell_write_value);
    table_add_column(t, soon ? "seconds" : "images/s", false, study_table_cell_write_mean);
    if (study_table_has_intervals(t))
        table_add_column(t, "95% interval", false, study_table_cell_write_interval);
    if (soon)
        table_add_column(t, "epochs", false, study_table_cell_write_epochs);
    if (study_table_has_accuracy(t))
        table_add_column(t, "val accuracy", false, study_table_cell_write_accuracy);
    if (strcmp(setting, "devices") != 0 && study_table_rows_differ(t, true))
        table_add_column(t, "devices", false, study_table_cell_write_devices);
    if (strcmp(setting, "shards") != 0 && study_table_rows_differ(t, false))
        table_add_column(t, "shards", false, study_table_cell_write_shards);
    table_add_column(t, "", true, study_table_cell_write_note);
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static int study_table_column_width(const table *t, int column)
{
    int width = cli_text_width(t->headings[column]);
    for (int r = 0; r < t->n_rows; r++) {
        int cell = cli_text_width(t->cells[r][column]);
        width = cell > width ? cell : width;
    }
    return width;
}

static void table_print_line(const table *t, const char (*cells)[CELL], FILE *stream)
{
    int spaces = 0; /* not printed yet, so that no line ends in spaces */
    for (int c = 0; c < t->n_columns; c++) {
        int missing = study_table_column_width(t, c) - cli_text_width(cells[c]);
        spaces += t->left[c] ? 0 : missing;
        if (*cells[c]) {
            fprintf(stream, "%*s", spaces, "");
            cli_print_clean(cells[c], stream);
            spaces = 0;
        }
        spaces += (t->left[c] ? missing : 0) + 2;
    }
    fputc('\n', stream);
}

static void table_print(const table *t, FILE *stream)
{
    table_print_line(t, t->headings, stream);
    for (int r = 0; r < t->n_rows; r++)
        table_print_line(t, t->cells[r], stream);
}

void cli_print_study(const lk_study *study, FILE *stream)
{
    table *t = calloc(1, sizeof *t);
    if (!t) {
        cli_out_of_memory();
        return;
    }
    table_fill(t, study);
    table_print(t, stream);
    free(t);
}
