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
