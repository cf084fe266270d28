/* Checks line charts and finds the ranges of their axes, for charts in files and in terminals. */
#pragma once

#include "lockstep/plot.h"

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

/* Returns whether the series has a point that can be drawn. */
bool lk__series_shows(const lk_series *series);

/* Returns whether a series that shows uses the right axis. */
bool lk__line_chart_has_right(const lk_line_chart *chart);
