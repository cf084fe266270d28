/* An axis of a chart: what it reaches over, and ticks at round numbers. */
#ifndef LK_IO_AXIS_H
#define LK_IO_AXIS_H

#include <stdbool.h>

enum { LK__TICK_TEXT = 48 };

typedef struct lk__axis {
    double min, max; /* min < max */
    double unit;     /* ticks are at multiples of this, */
    int exponent;    /* which is 1, 2 or 5 times 10^exponent */
    long long first; /* the multiples inside the axis */
    int ticks;       /* how many there are */
} lk__axis;

/* Values beyond this count as missing: their differences could overflow. */
bool lk__plot_value(double value);

/* An axis over [min, max] with at most `most` ticks, or 3. min > max, min == max and what is nearly equal are
 * widened. `whole`: no ticks between whole numbers. `round_min`, `round_max`: the end moves outwards to a tick. */
void lk__axis_make(lk__axis *axis, double min, double max, int most, bool whole, bool round_min, bool round_max);

double lk__axis_tick(const lk__axis *axis, int tick);

/* "0.25", "-20000", "1.5e-05": as many digits as the ticks differ in. */
void lk__axis_text(const lk__axis *axis, int tick, char text[LK__TICK_TEXT]);

/* 0 at min, 1 at max. */
double lk__axis_place(const lk__axis *axis, double value);

/* A number with four significant digits: "0.9123", "25310", "1.234e+12". */
void lk__number_text(double value, char text[LK__TICK_TEXT]);

#endif
