/* Digits are generated until those so far, or those so far plus one in the last place, identify the value: Steele and
 * White, "How to print floating-point numbers accurately", PLDI 1990 (dragon4). The original compares big integers;
 * this code asks the C library, whose conversions are exact both ways. No text that is read back contains a decimal
 * point, because how that is written depends on the locale. */
#include "core/decimal.h"

#include "base/float_env.h"
#include "base/minmax.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A double has at most 767 significant digits, a float 112. */
enum { DOUBLE_DIGITS = 767, FLOAT_DIGITS = 112, NO_LIMIT = 1 << 20 };

/* d.ddd… times 10^exponent, with all digits of the value. */
typedef struct expansion {
    int exponent;
    int count;
    char digits[DOUBLE_DIGITS];
} expansion;

typedef struct decimal {
    int exponent;
    int count;
    char digits[48];
} decimal;

static void decimal_expand(double value, lk_dtype dtype, expansion *x)
{
    char text[DOUBLE_DIGITS + 32];
    x->count = dtype == LK_F64 ? DOUBLE_DIGITS : FLOAT_DIGITS;
    snprintf(text, sizeof text, "%.*e", x->count - 1, value);
    const char *exponent = strchr(text, 'e');
    x->exponent = (int)strtol(exponent + 1, NULL, 10);
    x->digits[0] = text[0];
    memcpy(x->digits + 1, exponent - (x->count - 1), (size_t)(x->count - 1));
}

static char decimal_digit_at(const expansion *x, int i)
{
    return i < x->count ? x->digits[i] : '0';
}

/* Takes the first n digits of x or, with `up`, the next larger number of n digits. A carry drops the zeros it makes. */
static void decimal_take(const expansion *x, int n, bool up, decimal *d)
{
    d->exponent = x->exponent;
    d->count = n;
    for (int i = 0; i < n; i++)
        d->digits[i] = decimal_digit_at(x, i);
    if (!up)
        return;
    while (d->count > 0 && d->digits[d->count - 1] == '9')
        d->count--;
    if (d->count == 0) {
        d->digits[d->count++] = '1';
        d->exponent++;
    } else {
        d->digits[d->count - 1]++;
    }
}

static double decimal_bf16_value(uint32_t bits)
{
    float value;
    bits <<= 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns whether `read` is nearer to `value`, a positive bf16, than to its neighbors; a tie rounds to the even one. */
static bool decimal_rounds_to_bf16(double read, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    bits >>= 16;
    double below = value - decimal_bf16_value(bits - 1);
    double above = bits == 0x7f7f ? below : decimal_bf16_value(bits + 1) - value;
    double low = value - below / 2, high = value + above / 2;
    return bits % 2 == 0 ? low <= read && read <= high : low < read && read < high;
}

static bool decimal_reads_back(const decimal *d, double value, lk_dtype dtype)
{
    char text[80];
    snprintf(text, sizeof text, "%.*se%d", d->count, d->digits, d->exponent - d->count + 1);
    if (dtype == LK_F32)
        return strtof(text, NULL) == (float)value;
    double read = strtod(text, NULL);
    return dtype == LK_F64 ? read == value : decimal_rounds_to_bf16(read, value);
}

/* Returns whether the value is nearer to its first n digits plus one in the last place than to its first n digits; a
 * tie goes to the even digit. */
static bool decimal_is_nearer_above(const expansion *x, int n)
{
    char next = decimal_digit_at(x, n);
    if (next != '5')
        return next > '5';
    for (int i = n + 1; i < x->count; i++)
        if (x->digits[i] != '0')
            return true;
    return (decimal_digit_at(x, n - 1) - '0') % 2 == 1;
}

/* Returns how many digits a decimal number that reads back as the double has at least. One of up to DBL_DIG digits
 * survives being a double, so it is the value rounded to DBL_DIG digits, but for zeros at the end. */
static int decimal_least_digits(const expansion *x, double value)
{
    decimal d;
    if (value < DBL_MIN)
        return 1;
    decimal_take(x, DBL_DIG, decimal_is_nearer_above(x, DBL_DIG), &d);
    if (!decimal_reads_back(&d, value, LK_F64))
        return DBL_DIG + 1;
    while (d.count > 1 && d.digits[d.count - 1] == '0')
        d.count--;
    return d.count;
}

/* Chooses the fewest digits that read back as the value, but at least down to 10^coarsest and at most down to
 * 10^finest. */
static void decimal_choose(const expansion *x, double value, lk_dtype dtype, int coarsest, int finest, decimal *chosen)
{
    decimal down, up;
    bool is_down, is_up;
    int n = 0;
    fenv_t callers = lk__float_begin();
    if (dtype == LK_F64)
        n = (int)lk__min(decimal_least_digits(x, value), lk__max(1, x->exponent + 1 - finest)) - 1;
    do {
        n++;
        decimal_take(x, n, false, &down);
        decimal_take(x, n, true, &up);
        is_down = decimal_reads_back(&down, value, dtype);
        is_up = decimal_reads_back(&up, value, dtype);
        int last = x->exponent - n + 1;
        if (((is_down || is_up) && last <= coarsest) || last <= finest)
            break;
    } while (n < (int)sizeof chosen->digits);
    lk__float_end(&callers);
    bool go_up = is_down == is_up ? decimal_is_nearer_above(x, n) : is_up;
    *chosen = go_up ? up : down;
}

static char *decimal_put_sign(double *value, char *text)
{
    if (signbit(*value)) {
        *value = -*value;
        *text++ = '-';
    }
    return text;
}

static char *decimal_put_digits(const decimal *d, int from, int to, char *text)
{
    for (int i = from; i < to; i++)
        *text++ = i >= 0 && i < d->count ? d->digits[i] : '0';
    return text;
}

void lk__decimal_positional(double value, lk_dtype dtype, int least, int most, char *text)
{
    text = decimal_put_sign(&value, text);
    decimal d = {.exponent = 0};
    if (value != 0) {
        expansion x;
        decimal_expand(value, dtype, &x);
        decimal_choose(&x, value, dtype, least < 0 ? NO_LIMIT : -least, most < 0 ? -NO_LIMIT : -most, &d);
    }
    int whole = d.exponent < 0 ? 0 : d.exponent + 1;
    if (whole == 0)
        *text++ = '0';
    text = decimal_put_digits(&d, 0, whole, text);
    *text++ = '.';
    text = decimal_put_digits(&d, d.exponent < 0 ? d.exponent + 1 : whole, d.count, text);
    while (text[-1] == '0')
        text--;
    *text = '\0';
}

void lk__decimal_scientific(double value, lk_dtype dtype, int least, int most, int exponent_digits, char *text)
{
    text = decimal_put_sign(&value, text);
    decimal d = {.exponent = 0};
    if (value != 0) {
        expansion x;
        decimal_expand(value, dtype, &x);
        decimal_choose(&x, value, dtype, least < 0 ? NO_LIMIT : x.exponent - least,
                       most < 0 ? -NO_LIMIT : x.exponent - most, &d);
    }
    text = decimal_put_digits(&d, 0, 1, text);
    *text++ = '.';
    char *first = text;
    text = decimal_put_digits(&d, 1, d.count, text);
    while (text > first && text[-1] == '0')
        text--;
    while (text - first < least)
        *text++ = '0';
    sprintf(text, "e%c%0*d", d.exponent < 0 ? '-' : '+', exponent_digits, abs(d.exponent));
}
