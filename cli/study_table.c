#include "study_table.h"

#include "cli.h"

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

/* --- what the columns hold ---------------------------------------------------------------------------------------- */

/* As many decimals for all means as leave the least of them three digits or more. */
static int decimals_of(const table *t)
{
    double least = INFINITY;
    for (int r = 0; r < t->n_rows; r++)
        least = fmin(least, t->rows[r].mean); /* NAN is left out */
    return least >= 100 ? (least >= 1000 || !isfinite(least) ? 0 : 1) : least >= 10 ? 2 : 3;
}

static void write_number(double value, int decimals, char *cell)
{
    if (isfinite(value))
        snprintf(cell, CELL, "%.*f", decimals, value);
    else
        snprintf(cell, CELL, "-");
}

static void write_value(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    snprintf(cell, CELL, "%s", row->value);
}

static void write_mean(const table *t, const lk_study_row *row, char *cell)
{
    write_number(row->mean, decimals_of(t), cell);
}

/* Cut at 0, below which neither measure can be. */
static void write_interval(const table *t, const lk_study_row *row, char *cell)
{
    int decimals = decimals_of(t);
    if (row->low < row->high)
        snprintf(cell, CELL, "%.*f … %.*f", decimals, fmax(row->low, 0), decimals, row->high);
    else
        snprintf(cell, CELL, "-");
}

static void write_epochs(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    write_number(row->epochs, row->counted > 1 ? 1 : 0, cell);
}

static void write_accuracy(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    write_number(row->val_accuracy, 4, cell);
}

static void write_devices(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    write_number(row->devices > 0 ? row->devices : NAN, 0, cell);
}

static void write_shards(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    write_number(row->devices > 0 ? (double)row->shards : NAN, 0, cell);
}

static void write_note(const table *t, const lk_study_row *row, char *cell)
{
    (void)t;
    snprintf(cell, CELL, "%s", row->note);
}

/* --- which columns there are -------------------------------------------------------------------------------------- */

static void add_column(table *t, const char *heading, bool left, write_cell_fn write)
{
    int column = t->n_columns++;
    snprintf(t->headings[column], CELL, "%s", heading);
    t->left[column] = left;
    for (int r = 0; r < t->n_rows; r++)
        write(t, &t->rows[r], t->cells[r][column]);
}

static bool has_intervals(const table *t)
{
    bool has = false;
    for (int r = 0; r < t->n_rows; r++)
        has |= t->rows[r].low < t->rows[r].high;
    return has;
}

static bool has_accuracy(const table *t)
{
    bool has = false;
    for (int r = 0; r < t->n_rows; r++)
        has |= !isnan(t->rows[r].val_accuracy);
    return has;
}

static const lk_study_row *first_trained(const table *t)
{
    for (int r = 0; r < t->n_rows; r++)
        if (t->rows[r].devices > 0)
            return &t->rows[r];
    return NULL;
}

/* Devices and shards that differ though they are not varied explain some of the difference. */
static bool differs(const table *t, bool devices)
{
    const lk_study_row *first = first_trained(t);
    for (int r = 0; first && r < t->n_rows; r++) {
        const lk_study_row *row = &t->rows[r];
        if (row->devices > 0 && (devices ? row->devices != first->devices : row->shards != first->shards))
            return true;
    }
    return false;
}

static void fill(table *t, const lk_study *study)
{
    bool soon = lk_study_get_measure(study) == LK_MEASURE_TIME_TO_ACCURACY;
    const char *setting = lk_study_setting(study);
    t->n_rows = lk_study_row_count(study);
    for (int r = 0; r < t->n_rows; r++)
        t->rows[r] = lk_study_row_at(study, r);
    add_column(t, setting, true, write_value);
    add_column(t, soon ? "seconds" : "images/s", false, write_mean);
    if (has_intervals(t))
        add_column(t, "95% interval", false, write_interval);
    if (soon)
        add_column(t, "epochs", false, write_epochs);
    if (has_accuracy(t))
        add_column(t, "val accuracy", false, write_accuracy);
    if (strcmp(setting, "devices") != 0 && differs(t, true))
        add_column(t, "devices", false, write_devices);
    if (strcmp(setting, "shards") != 0 && differs(t, false))
        add_column(t, "shards", false, write_shards);
    add_column(t, "", true, write_note);
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

/* Code points: bytes that do not go on with one. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static int widest(const table *t, int column)
{
    int width = width_of(t->headings[column]);
    for (int r = 0; r < t->n_rows; r++) {
        int cell = width_of(t->cells[r][column]);
        width = cell > width ? cell : width;
    }
    return width;
}

static void print_line(const table *t, const char (*cells)[CELL], FILE *stream)
{
    int spaces = 0; /* owed: none are printed at the end of a line */
    for (int c = 0; c < t->n_columns; c++) {
        int room = widest(t, c) - width_of(cells[c]);
        spaces += t->left[c] ? 0 : room;
        if (*cells[c]) {
            fprintf(stream, "%*s", spaces, "");
            cli_print_clean(cells[c], stream);
            spaces = 0;
        }
        spaces += (t->left[c] ? room : 0) + 2;
    }
    fputc('\n', stream);
}

static void print_table(const table *t, FILE *stream)
{
    print_line(t, t->headings, stream);
    for (int r = 0; r < t->n_rows; r++)
        print_line(t, t->cells[r], stream);
}

void cli_print_study(const lk_study *study, FILE *stream)
{
    table *t = calloc(1, sizeof *t);
    if (!t) {
        fputs("lockstep: out of memory\n", stderr);
        return;
    }
    fill(t, study);
    print_table(t, stream);
    free(t);
}
