/* Numbers in texts: with a decimal point in any locale. */
#ifndef LK_BASE_NUMBER_H
#define LK_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* Whether `text` begins like a decimal number: strtoll and strtod skip leading space, and strtod takes hexadecimal,
 * "nan" and "inf" too. */
bool lk__number_starts(const char *text);

/* strtod(3) as in the C locale. */
double lk__number_parse(const char *text, char **end);

/* The shortest text that reads back to the same number. Gives its length, as snprintf. */
int lk__number_print(double number, char *text, size_t size);

#endif
