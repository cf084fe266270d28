/* An axis of a chart: its range, and ticks at round numbers. */
#pragma once

#include <stdbool.h>

enum { LK__TICK_TEXT = 48 };

typedef struct lk_axis {
    double min, max; /* min < max */
    double unit;     /* distance of ticks: 1, 2 or 5 times 10^exponent */
    int exponent;
    long long first; /* the first tick is at first * unit */
    int ticks;       /* number of ticks */
} lk_axis;

/* Returns whether a value can be drawn. NaN and values beyond 1e150, whose differences could overflow, count as
 * missing. */
bool lk__plot_value(double value);

/* Makes an axis over [min, max] with at most `most` ticks, or 3 if that is more. An empty or very narrow range is
 * widened. `whole`: ticks at whole numbers only. `round_min`, `round_max`: that end moves outwards to a tick. */
void lk__axis_make(lk_axis *axis, double min, double max, int most, bool whole, bool round_min, bool round_max);

double lk__axis_tick(const lk_axis *axis, int tick);

/* Writes a tick's number, such as "0.25", "-20000" or "1.5e-05", with as many digits as tell the ticks apart. */
void lk__axis_text(const lk_axis *axis, int tick, char text[LK__TICK_TEXT]);

/* Returns the position of a value on the axis: 0 at min, 1 at max. */
double lk__axis_position(const lk_axis *axis, double value);

/* Writes a number with four significant digits: "0.9123", "25310", "1.234e+12". */
void lk__number_text(double value, char text[LK__TICK_TEXT]);
