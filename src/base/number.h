/* Numbers in texts, with a decimal point in every locale. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Returns whether `text` begins like a decimal number. strtoll and strtod alone would also skip leading space, and
 * strtod accepts hexadecimal, "nan" and "inf". */
bool lk__number_starts(const char *text);

/* strtod(3) as in the C locale. */
double lk__number_parse(const char *text, char **end);

/* Prints the shortest text that reads back as the same number. Returns its length, as snprintf. */
int lk__number_print(double number, char *text, size_t size);

/* Writes "12.5": exactly `decimals` digits after the point, 0 … 9. |value| < 9e18 / 10^decimals. */
enum { LK__FIXED_DIGITS = 24 };
void lk__number_fixed(double value, int decimals, char text[LK__FIXED_DIGITS]);
