/* Charts and sheets of images: line charts, bar charts and matrices as SVG and PNG, line charts and sheets as text for
 * a terminal.
 *
 *     lk_series loss = {.name = "loss", .x = epochs, .y = losses, .count = n};
 *     lk_line_chart_write(&(lk_line_chart){.x_label = "epoch", .series = &loss, .series_count = 1}, "loss.svg");
 *
 * A file is written under another name and then renamed, so that a program that displays it sees the old picture or the
 * new one. PNG needs libcairo; a build without it gives LK_ERR_UNSUPPORTED. Texts are UTF-8. Arguments are only read,
 * during the call. */
#ifndef LOCKSTEP_PLOT_H
#define LOCKSTEP_PLOT_H

#include "lockstep/status.h"
#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- line charts ---- */

/* Points that are joined by lines in their order. A point is left out, with its lines, if x or y is not finite or
 * exceeds 1e150. */
typedef struct lk_series {
    const char *name; /* for the legend */
    const double *x, *y;
    int64_t count; /* points; a series without any, or with all left out, is not in the legend */
    bool right;    /* y belongs to the axis on the right */
} lk_series;

enum { LK_MAX_SERIES = 8 };

typedef struct lk_line_chart {
    const char *title, *x_label, *y_label, *right_label; /* NULL: none */
    const lk_series *series;
    int series_count; /* at most LK_MAX_SERIES */
    /* The least range of each axis; min == max: the range of the points. Axes are widened to round numbers if points
     * lie outside. */
    double x_min, x_max, y_min, y_max, right_min, right_max;
    int width, height; /* pixels; 0: 720 x 440 */
} lk_line_chart;

/* Writes the chart to `path`, whose ending ".svg" or ".png" chooses the format.
 * Errors: LK_ERR_ARGUMENT (ending, more than LK_MAX_SERIES series, a range that is not finite or min > max, a size
 * outside 160 … 8192 pixels), LK_ERR_IO, LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (no libcairo), LK_ERR_BACKEND (libcairo
 * failed). */
LK_API lk_status lk_line_chart_write(const lk_line_chart *chart, const char *path);

/* Says whether a chart can be written to such a path: its ending and what this build has. For programs that draw after
 * long work. Errors: LK_ERR_ARGUMENT (ending), LK_ERR_UNSUPPORTED (no libcairo), LK_ERR_MEMORY. */
LK_API lk_status lk_chart_check(const char *path);

/* Draws `count` charts side by side, each of its own width, as high as the highest. title: over all of them; NULL:
 * none. Errors: as lk_line_chart_write, with the limits of a side for each chart and for the whole picture. */
LK_API lk_status lk_line_charts_write(const char *title, const lk_line_chart *charts, int count, const char *path);

typedef struct lk_text_style {
    int columns, rows; /* of the picture; at least 24 x 8, at most 1000 x 1000 */
    bool ascii;        /* ASCII only; else box drawing characters and, with color, Braille patterns */
    bool color;        /* use ANSI escape sequences */
} lk_text_style;

/* The style that a stream can show. columns, rows: those of its terminal, without the last column, in which a line
 * would wrap; 0: it is no terminal. ascii, color: from the environment (LC_ALL, LC_CTYPE, LANG; TERM, NO_COLOR). */
LK_API lk_text_style lk_text_style_of(FILE *stream);

/* Gives the chart as `rows` lines of at most `columns` characters, each with a newline; free it with lk_free. Labels of
 * axes are left out if they do not fit. NULL on failure: LK_ERR_ARGUMENT (as above; a size outside the style's limits),
 * LK_ERR_MEMORY. */
LK_API char *lk_line_chart_text(const lk_line_chart *chart, lk_text_style style);

/* ---- bar charts ---- */

typedef struct lk_bar {
    const char *label; /* below the bar */
    double value;      /* 0 or more; not finite: draw the note instead of a bar */
    double low, high;  /* interval to draw as a whisker, usually of 95%; low == high: none */
    const char *note;  /* next to the value; NULL: none, or "not reached" instead of a bar */
} lk_bar;

typedef struct lk_bar_chart {
    const char *title, *x_label, *y_label; /* NULL: none */
    const lk_bar *bars;
    int bar_count;     /* 1 … 100 */
    int width, height; /* pixels; 0: 720 x 440 */
} lk_bar_chart;

/* As lk_line_chart_write. Errors also: LK_ERR_ARGUMENT (no bars or too many, a negative value, low > high, an end of an
 * interval that is negative or not finite). */
LK_API lk_status lk_bar_chart_write(const lk_bar_chart *chart, const char *path);

/* ---- matrices of counts ---- */

enum { LK_MATRIX_CHART_MOST = 256 };

/* A square for each count, the darker the greater its share of its row, and a scale of these shares. */
typedef struct lk_matrix_chart {
    const char *title, *row_label, *column_label; /* NULL: none */
    const char *const *names;                     /* [size], for rows and columns; NULL entries, or NULL: numbers */
    const int64_t *counts;                        /* [size][size], none negative */
    int64_t size;                                 /* 1 … LK_MATRIX_CHART_MOST */
} lk_matrix_chart;

/* Writes the chart to `path`, whose ending ".svg" or ".png" chooses the format. Squares hold their counts if these fit.
 * Errors: LK_ERR_ARGUMENT (ending, size, a negative count), others as for lk_line_chart_write. */
LK_API lk_status lk_matrix_chart_write(const lk_matrix_chart *chart, const char *path);

/* ---- sheets of images ---- */

typedef struct lk_contact_sheet {
    const char *title;  /* NULL: none; the sheet is at least as wide as its title */
    const void *images; /* [count, channels, height, width], row-major */
    lk_dtype dtype;     /* of images: LK_U8, or LK_F32 from `black` to `white` */
    int64_t count;
    int64_t channels; /* 1: gray; 3: red, green, blue */
    int64_t height, width;
    /* Values of LK_F32 that are drawn black and white; others are clipped, and values that are not finite are magenta.
     * If both are equal, the least and greatest finite values of all images are used. */
    double black, white;
    /* [count]; NULL entries, or NULL: none. Newlines separate the lines of a caption. A line that is wider than its
     * image is cut in the middle. */
    const char *const *captions;
    int64_t columns; /* images in a row; 0: the sheet becomes about square */
    int64_t scale;   /* a pixel becomes scale x scale pixels; 0: an image becomes about 100 pixels wide */
} lk_contact_sheet;

/* Writes the images in rows, left to right, as PNG, whatever the ending of `path`.
 * Errors: LK_ERR_ARGUMENT (a count, size or dtype out of range; a sheet of more than 16384 pixels a side), LK_ERR_IO,
 * LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (no libcairo), LK_ERR_BACKEND. */
LK_API lk_status lk_contact_sheet_write(const lk_contact_sheet *sheet, const char *path);

/* Gives the images as text, in lines of at most style.columns (24 to 1000) characters; free it with lk_free. A
 * character shows two pixels, one above the other, in 256 colors or, without color, by one of ten characters of rising
 * density. Images wider than 28 pixels or than style.columns are reduced by a whole factor. The sheet's title, columns
 * and scale and the style's rows are ignored. NULL on failure: LK_ERR_ARGUMENT, LK_ERR_MEMORY. */
LK_API char *lk_contact_sheet_text(const lk_contact_sheet *sheet, lk_text_style style);

#ifdef __cplusplus
}
#endif

#endif
