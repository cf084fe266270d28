/* Parts of every chart: fonts, margins, and the frame with its title, axes and ticks. */
#pragma once

#include "io/charts/axis.h"
#include "io/charts/canvas.h"
#include "lockstep/plot.h"

enum { LK__MARGIN = 16, LK__ROW = 18, LK__TICK_GAP = 6 };

extern const lk_font lk__title_font, lk__label_font, lk__tick_font;

/* A chart's part of the canvas. */
typedef struct lk_area {
    double left, top, width, height;
} lk_area;

/* The rectangle in which values are plotted. It shrinks as titles, labels and the legend around it are drawn. */
typedef struct lk_chart_frame {
    lk_canvas *canvas;
    double left, right, top, bottom;
} lk_chart_frame;

typedef struct lk_labels {
    const char *title, *x, *y, *right; /* NULL: none */
} lk_labels;

/* Returns the width of the widest number on the axis. */
double lk__tick_width(lk_canvas *canvas, const lk_axis *axis);

/* Draws the title over an area, and returns what is left of the area below it. */
lk_area lk__draw_title(lk_canvas *canvas, lk_area area, const char *title);

/* Starts a frame in an area: draws the title and the names of the axes, and leaves space for the ticks of `y` on the
 * left and, if it is not NULL, of `right` on the right. */
void lk__frame_begin(lk_chart_frame *frame, lk_canvas *canvas, lk_area area, lk_labels labels, const lk_axis *y,
                     const lk_axis *right);

/* Draws the numbers of the ticks on the left, and lines across the chart. */
void lk__frame_y(const lk_chart_frame *frame, const lk_axis *y);

/* Draws the ticks and their numbers on the right. */
void lk__frame_right(const lk_chart_frame *frame, const lk_axis *right);

/* Draws the line at the bottom, with the ticks of `x` and their numbers below it. x NULL: only the line. */
void lk__frame_x(const lk_chart_frame *frame, const lk_axis *x);
