#include "io/axis.h"

#include "io/bytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double LARGEST_VALUE = 1e150;

bool lk__plot_value(double value)
{
    return fabs(value) <= LARGEST_VALUE; /* false for NaN */
}

/* Ends that differ by less than labels could tell. */
static void widen(double *min, double *max)
{
    if (*min > *max)
        *min = 0, *max = 1;
    double size = fmax(fabs(*min), fabs(*max));
    if (*max - *min > size * 1e-6)
        return;
    double margin = size > 0 ? size * 0.05 : 0.5;
    *min -= margin;
    *max += margin;
}

static double power_of_ten(int exponent)
{
    return exponent < 0 ? 1 / pow(10, -exponent) : pow(10, exponent); /* negative powers are not exact, 10^n is */
}

static double multiple(const lk__axis *axis, double count)
{
    long long leading = llround(axis->unit / power_of_ten(axis->exponent));
    return axis->exponent < 0 ? count * (double)leading / power_of_ten(-axis->exponent) : count * axis->unit;
}

/* The least unit of 1, 2, 5, 10, … that makes at most `most` ticks. An end that is to be round has its tick outside or
 * on it; the others may miss theirs by a rounding error. */
static void choose_unit(lk__axis *axis, int most, bool whole, bool round_min, bool round_max)
{
    static const double leading[] = {1, 2, 5};
    const double slack = 1e-9;
    int exponent = (int)floor(log10((axis->max - axis->min) / most)) - 1;
    if (whole && exponent < 0)
        exponent = 0;
    for (int i = 0;; i = (i + 1) % 3, exponent += i == 0) {
        axis->unit = leading[i] * power_of_ten(exponent);
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

void lk__axis_make(lk__axis *axis, double min, double max, int most, bool whole, bool round_min, bool round_max)
{
    widen(&min, &max);
    *axis = (lk__axis){.min = min, .max = max};
    choose_unit(axis, most < 3 ? 3 : most, whole, round_min, round_max); /* 3: zero between two rounded ends */
    if (round_min)
        axis->min = lk__axis_tick(axis, 0);
    if (round_max)
        axis->max = lk__axis_tick(axis, axis->ticks - 1);
}

double lk__axis_tick(const lk__axis *axis, int tick)
{
    return multiple(axis, (double)(axis->first + tick));
}

double lk__axis_place(const lk__axis *axis, double value)
{
    return (value - axis->min) / (axis->max - axis->min);
}

/* `value` to the decimal place 10^place. */
static void number_text(double value, int place, double largest, char text[LK__TICK_TEXT])
{
    char digits[LK__FIXED_TEXT];
    if (place >= -6 && largest < 1e7) {
        lk__fixed_text(value, place < 0 ? -place : 0, digits);
        snprintf(text, LK__TICK_TEXT, "%s", digits);
        return;
    }
    if (value == 0) {
        snprintf(text, LK__TICK_TEXT, "0");
        return;
    }
    int exponent = (int)floor(log10(fabs(value)) + 1e-12);
    int decimals = exponent - place < 0 ? 0 : exponent - place > 9 ? 9 : exponent - place;
    lk__fixed_text(exponent < -300 ? 0 : value / power_of_ten(exponent), decimals, digits);
    snprintf(text, LK__TICK_TEXT, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

void lk__axis_text(const lk__axis *axis, int tick, char text[LK__TICK_TEXT])
{
    double value = lk__axis_tick(axis, tick);
    number_text(value, axis->exponent, fmax(fabs(axis->min), fabs(axis->max)), text);
}

void lk__number_text(double value, char text[LK__TICK_TEXT])
{
    int exponent = value == 0 ? 0 : (int)floor(log10(fabs(value)) + 1e-12);
    number_text(value, exponent > 3 && exponent < 7 ? 0 : exponent - 3, fabs(value), text);
}
