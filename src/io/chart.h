/* What the kinds of chart share. */
#ifndef LK_IO_CHART_H
#define LK_IO_CHART_H

#include "io/axis.h"
#include "io/canvas.h"
#include "lockstep/plot.h"

enum { LK__MARGIN = 16, LK__ROW = 18, LK__TICK_GAP = 6 };

extern const lk__font lk__title_font, lk__label_font, lk__tick_font;

/* The rectangle that a chart is plotted in; what surrounds it is taken off while it is drawn. */
typedef struct lk__frame {
    lk__canvas *canvas;
    double left, right, top, bottom;
} lk__frame;

typedef struct lk__labels {
    const char *title, *x, *y, *right; /* NULL: none */
} lk__labels;

/* The title above, the names of the axes, and room for the ticks of `y` at the left and of `right`, if it is not NULL,
 * at the right. */
void lk__frame_begin(lk__frame *frame, lk__canvas *canvas, lk__labels labels, const lk__axis *y, const lk__axis *right);

/* Ticks, their numbers and lines across the chart. */
void lk__frame_y(const lk__frame *frame, const lk__axis *y);

/* Ticks and their numbers at the right. */
void lk__frame_right(const lk__frame *frame, const lk__axis *right);

/* The line at the bottom, with ticks and their numbers below it; `x` NULL: only the line. */
void lk__frame_x(const lk__frame *frame, const lk__axis *x);

/* --- line charts, in a file or a terminal --- */

typedef struct lk__range {
    double min, max;           /* min > max: there is nothing */
    bool whole;                /* only whole numbers */
    bool round_min, round_max; /* an end that is not asked for goes outwards to a round number */
} lk__range;

lk_status lk__line_chart_check(const lk_line_chart *chart);
void lk__line_chart_ranges(const lk_line_chart *chart, lk__range *x, lk__range *y, lk__range *right);

/* Whether there is a point of the series, or of any at the right. */
bool lk__series_shows(const lk_series *series);
bool lk__line_chart_has_right(const lk_line_chart *chart);

#endif
