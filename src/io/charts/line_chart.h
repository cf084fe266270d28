/* Checks line charts and finds the ranges of their axes, for charts in files and in terminals. */
#pragma once

#include "io/charts/chart.h"

#include <stdbool.h>

typedef struct lk_axis_range {
    double min, max;           /* min > max: no values */
    bool whole;                /* whole numbers only */
    bool round_min, round_max; /* the caller did not fix this end: it moves outwards to a round number */
} lk_axis_range;

/* Errors: LK_ERR_ARGUMENT. */
lk_status lk__line_chart_check(const lk_line_chart *chart);

/* Finds the ranges of the three axes from the values and from what the chart asks for. */
void lk__line_chart_ranges(const lk_line_chart *chart, lk_axis_range *x, lk_axis_range *y, lk_axis_range *right);

/* Draws a chart that was checked into an area. Sets *frame to where its values are, and *x and *y to its axes. Errors:
 * LK_ERR_ARGUMENT, LK_ERR_MEMORY. */
lk_status lk__line_chart_draw(const lk_line_chart *chart, lk_canvas *canvas, lk_area area, lk_chart_frame *frame,
                              lk_axis *x, lk_axis *y);

/* Replaces a series of more than `parts` points by the means over so many equal parts of [min, max]; x and y [parts]
 * hold them. min < max. A point whose x is in an earlier part than that of the point before it, or outside the range,
 * counts to the nearest part that comes next. */
void lk__series_join(lk_series *series, int parts, double min, double max, double *x, double *y);

/* Returns whether the series has a point that can be drawn. */
bool lk__series_shows(const lk_series *series);

/* Returns whether a series that shows uses the right axis. */
bool lk__line_chart_has_right(const lk_line_chart *chart);
