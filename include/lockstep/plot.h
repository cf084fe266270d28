/* Pictures of numbers: line charts and bar charts as SVG and PNG, line charts as text for a terminal, and sheets of
 * small images.
 *
 * A file is written beside its place and renamed into it: who looks at it while training goes on sees the old picture
 * or the new one. PNG needs libcairo; a build without it gives LK_ERR_UNSUPPORTED. All texts are UTF-8; what is passed
 * in is only read, during the call. */
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

/* Points joined by lines, in the order given. A point whose x or y is not finite, or beyond 1e150, is missing, and so
 * are the lines that it would end. */
typedef struct lk_series {
    const char *name; /* in the legend */
    const double *x, *y;
    int64_t count; /* a series of no points, or of missing ones, is not in the legend either */
    bool right;    /* y is on an axis of its own, at the right */
} lk_series;

enum { LK_MAX_SERIES = 8 };

typedef struct lk_line_chart {
    const char *title, *x_label, *y_label, *right_label; /* NULL: none */
    const lk_series *series;
    int series_count; /* at most LK_MAX_SERIES */
    /* What the axes reach over at least; min == max: what the points do. All are widened to round numbers where points
     * lie outside. */
    double x_min, x_max, y_min, y_max, right_min, right_max;
    int width, height; /* of the picture in pixels; 0: 720 x 440 */
} lk_line_chart;

/* Writes the chart to `path`, as its ending says: ".svg" or ".png".
 * Errors: LK_ERR_ARGUMENT (ending, more than LK_MAX_SERIES series, a range that is not finite or min > max, a size
 * outside 160 … 8192 pixels), LK_ERR_IO, LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (no libcairo), LK_ERR_BACKEND (libcairo
 * failed). */
LK_API lk_status lk_line_chart_write(const lk_line_chart *chart, const char *path);

typedef struct lk_text_style {
    int columns, rows; /* of the whole picture; at least 24 x 8, at most 1000 x 1000 */
    bool ascii;        /* nothing beyond ASCII; else box drawing, and Braille where colours tell the series apart */
    bool colour;       /* ANSI escape sequences */
} lk_text_style;

/* What a stream can show: columns and rows of its terminal, less the last column, where a line would wrap, and 0 where
 * it is none; ascii and colour as the environment says (LC_ALL, LC_CTYPE, LANG; TERM, NO_COLOR). */
LK_API lk_text_style lk_text_style_of(FILE *stream);

/* The chart as `rows` lines of at most `columns` characters, each ended by a newline; to be freed with lk_free. The
 * labels of the axes are left out where there is no room. NULL on failure: LK_ERR_ARGUMENT as above, and for a size
 * outside the style's limits; LK_ERR_MEMORY. */
LK_API char *lk_line_chart_text(const lk_line_chart *chart, lk_text_style style);

/* ---- bar charts ---- */

typedef struct lk_bar {
    const char *label; /* below the bar */
    double value;      /* 0 or more; not finite: there is no bar, the note stands in its place */
    double low, high;  /* ends of an interval drawn as a whisker, 95% by custom; low == high: none */
    const char *note;  /* beside the value; NULL: none, or "not reached" where there is no bar */
} lk_bar;

typedef struct lk_bar_chart {
    const char *title, *x_label, *y_label; /* NULL: none */
    const lk_bar *bars;
    int bar_count;     /* 1 … 100 */
    int width, height; /* of the picture in pixels; 0: 720 x 440 */
} lk_bar_chart;

/* As lk_line_chart_write. Errors beside those: LK_ERR_ARGUMENT (no bars or too many, a negative value, low > high or an
 * end of an interval that is negative or not finite). */
LK_API lk_status lk_bar_chart_write(const lk_bar_chart *chart, const char *path);

/* ---- matrices of counts ---- */

enum { LK_MATRIX_CHART_MOST = 256 };

/* A square for each count, darker the greater its share of its row. */
typedef struct lk_matrix_chart {
    const char *title, *row_label, *column_label; /* NULL: none */
    const char *const *names;                     /* [size] of rows and columns, each may be NULL; NULL: numbers */
    const int64_t *counts;                        /* [size][size], none negative */
    int64_t size;                                 /* 1 … LK_MATRIX_CHART_MOST */
} lk_matrix_chart;

/* Writes the chart to `path`, as its ending says: ".svg" or ".png". Counts stand in their squares where there is room.
 * Errors: LK_ERR_ARGUMENT (ending, size, a negative count), others as lk_line_chart_write. */
LK_API lk_status lk_matrix_chart_write(const lk_matrix_chart *chart, const char *path);

/* ---- sheets of images ---- */

typedef struct lk_contact_sheet {
    const char *title;  /* NULL: none; the sheet is at least as wide */
    const void *images; /* [count, channels, height, width], row-major */
    lk_dtype dtype;     /* LK_U8, or LK_F32 between `black` and `white` */
    int64_t count;
    int64_t channels; /* 1: grey; 3: red, green, blue */
    int64_t height, width;
    /* Of LK_F32, clipped; equal: the least and the greatest finite value of all images. A value that is not finite is
     * magenta. */
    double black, white;
    const char *const *captions; /* [count], each may be NULL; NULL: none. A caption wider than its image is cut. */
    int64_t columns;             /* 0: such that the sheet is about square */
    int64_t scale;               /* a pixel becomes scale x scale; 0: such that an image is about 100 pixels wide */
} lk_contact_sheet;

/* Writes the images in rows, left to right, as PNG, whatever the path's ending is.
 * Errors: LK_ERR_ARGUMENT (a count, size or dtype out of range; a sheet of more than 16384 pixels a side), LK_ERR_IO,
 * LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (no libcairo), LK_ERR_BACKEND. */
LK_API lk_status lk_contact_sheet_write(const lk_contact_sheet *sheet, const char *path);

/* The images as text, each ended line at most style.columns characters (24 to 1000) wide, to be freed with lk_free: a
 * character for two pixels, one above the other, in the terminal's 256 colours, or without colours one of ten that are
 * as dense as the two are bright. Images wider than 28 pixels, or than there are columns, are made smaller by a whole
 * factor. title, columns and scale of the sheet and rows of the style do not matter. NULL on failure: LK_ERR_ARGUMENT,
 * LK_ERR_MEMORY. */
LK_API char *lk_contact_sheet_text(const lk_contact_sheet *sheet, lk_text_style style);

#ifdef __cplusplus
}
#endif

#endif
