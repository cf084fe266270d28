#include "base/number.h"

#include "base/float_env.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t number_use_c_locale(locale_t *plain)
{
    *plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return *plain ? uselocale(*plain) : (locale_t)0;
}

static void number_restore_locale(locale_t before, locale_t plain)
{
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
}

bool lk__number_starts(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    if (*text == '.')
        text++;
    return *text >= '0' && *text <= '9' && text[1] != 'x' && text[1] != 'X';
}

double lk__number_parse(const char *text, char **end)
{
    locale_t plain, before = number_use_c_locale(&plain);
    fenv_t callers = lk__float_begin();
    double number = strtod(text, end);
    lk__float_end(&callers);
    number_restore_locale(before, plain);
    return number;
}

int lk__number_print(double number, char *text, size_t size)
{
    locale_t plain, before = number_use_c_locale(&plain);
    int length = 0;
    fenv_t callers = lk__float_begin();
    for (int digits = 1; digits <= 17; digits++) {
        char trial[32];
        snprintf(trial, sizeof trial, "%.*g", digits, number);
        if (strtod(trial, NULL) == number || digits == 17) {
            length = snprintf(text, size, "%s", trial);
            break;
        }
    }
    lk__float_end(&callers);
    number_restore_locale(before, plain);
    return length;
}

void lk__number_fixed(double value, int decimals, char text[LK__FIXED_DIGITS])
{
    long long unit = 1;
    for (int i = 0; i < decimals; i++)
        unit *= 10;
    long long scaled = llround(fabs(value) * (double)unit);
    const char *sign = value < 0 && scaled != 0 ? "-" : "";
    if (decimals == 0)
        snprintf(text, LK__FIXED_DIGITS, "%s%lld", sign, scaled);
    else
        snprintf(text, LK__FIXED_DIGITS, "%s%lld.%0*lld", sign, scaled / unit, decimals, scaled % unit);
}
