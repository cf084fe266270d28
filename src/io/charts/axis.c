#include "io/charts/axis.h"

#include "base/minmax.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double LARGEST_VALUE = 1e150, SMALLEST_SIZE = 1e-290; /* so that units can be divided by */

bool lk__plot_value(double value)
{
    return fabs(value) <= LARGEST_VALUE; /* false for NaN */
}

/* Moves ends apart that are too close for different labels. */
static void axis_widen(double *min, double *max)
{
    if (*min > *max)
        *min = 0, *max = 1;
    double size = fmax(fabs(*min), fabs(*max));
    if (size > 0 && size < SMALLEST_SIZE)
        *max = 1;
    else if (*max - *min > size * 1e-6)
        return;
    double margin = size > 0 ? size * 0.05 : 0.5;
    *min -= margin;
    *max += margin;
}

static double axis_power_of_ten(int exponent)
{
    return exponent < 0 ? 1 / pow(10, -exponent) : pow(10, exponent); /* pow is exact for 10^n, not for 10^-n */
}

/* Chooses the smallest unit of 1, 2, 5, 10, … that gives at most `most` ticks. A rounded end has its last tick on or
 * outside the range, any other end on or inside. `slack` allows for rounding errors. */
static void axis_choose_unit(lk_axis *axis, int most, bool whole, bool round_min, bool round_max)
{
    static const double leading[] = {1, 2, 5};
    const double slack = 1e-9;
    int exponent = (int)floor(log10((axis->max - axis->min) / most)) - 1;
    if (whole && exponent < 0)
        exponent = 0;
    for (int i = 0;; i = (i + 1) % 3, exponent += i == 0) {
        axis->unit = leading[i] * axis_power_of_ten(exponent);
        axis->exponent = exponent;
        double min = axis->min / axis->unit, max = axis->max / axis->unit;
        double first = round_min ? floor(min + slack) : ceil(min - slack);
        double last = round_max ? ceil(max - slack) : floor(max + slack);
        axis->first = (long long)first;
        axis->ticks = last < first ? 0 : (int)fmin(last - first + 1, 1e6);
        if (axis->ticks <= most)
            return;
    }
}

void lk__axis_make(lk_axis *axis, double min, double max, int most, bool whole, bool round_min, bool round_max)
{
    axis_widen(&min, &max);
    *axis = (lk_axis){.min = min, .max = max};
    axis_choose_unit(axis, most < 3 ? 3 : most, whole, round_min, round_max); /* 3: zero between two rounded ends */
    if (round_min)
        axis->min = lk__axis_tick(axis, 0);
    if (round_max)
        axis->max = lk__axis_tick(axis, axis->ticks - 1);
}

double lk__axis_tick(const lk_axis *axis, int tick)
{
    double count = (double)(axis->first + tick);
    long long leading = llround(axis->unit / axis_power_of_ten(axis->exponent));
    return axis->exponent < 0 ? count * (double)leading / axis_power_of_ten(-axis->exponent) : count * axis->unit;
}

double lk__axis_position(const lk_axis *axis, double value)
{
    return (value - axis->min) / (axis->max - axis->min);
}

/* Returns the exponent of the first digit of `value`, not 0, after rounding to so many digits behind the first. */
static int axis_first_exponent(double value, int decimals)
{
    int exponent = (int)floor(log10(fabs(value)) + 1e-12);
    bool reaches_ten =
        exponent >= -300 && fabs(value) / axis_power_of_ten(exponent) >= 10 - 0.5 * axis_power_of_ten(-decimals);
    return exponent + reaches_ten;
}

/* Writes `value` rounded to a multiple of 10^digit: in scientific notation if `digit` is below -6 or `largest` is 1e7
 * or more. */
static void axis_number_text(double value, int digit, double largest, char text[LK__TICK_TEXT])
{
    char digits[LK__FIXED_DIGITS];
    if (digit >= -6 && largest < 1e7) {
        lk__number_fixed(value, digit < 0 ? -digit : 0, digits);
        snprintf(text, LK__TICK_TEXT, "%s", digits);
        return;
    }
    if (value == 0) {
        snprintf(text, LK__TICK_TEXT, "0");
        return;
    }
    int decimals = (int)lk__max(0, lk__min((int)floor(log10(fabs(value)) + 1e-12) - digit, 9));
    int exponent = axis_first_exponent(value, decimals);
    decimals = (int)lk__max(0, lk__min(exponent - digit, 9));
    lk__number_fixed(exponent < -300 ? 0 : value / axis_power_of_ten(exponent), decimals, digits);
    snprintf(text, LK__TICK_TEXT, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

void lk__axis_text(const lk_axis *axis, int tick, char text[LK__TICK_TEXT])
{
    double value = lk__axis_tick(axis, tick);
    axis_number_text(value, axis->exponent, fmax(fabs(axis->min), fabs(axis->max)), text);
}

void lk__number_text(double value, char text[LK__TICK_TEXT])
{
    int exponent = value == 0 ? 0 : axis_first_exponent(value, 3);
    axis_number_text(value, exponent > 3 && exponent < 7 ? 0 : exponent - 3, fabs(value), text);
}
