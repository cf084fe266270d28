/* Decimal texts of floating-point values: the shortest digits that read back to the same value of the element's own
 * dtype, chosen as NumPy's print() does. */
#ifndef LK_CORE_DECIMAL_H
#define LK_CORE_DECIMAL_H

#include "lockstep/tensor.h"

#include <stddef.h>

/* `value` is finite and a value of `dtype`: f32, bf16 or f64. At most `most` digits after the point, rounded there
 * where the value has more; at least `least`. A negative limit is none. Every text has a point in any locale, and fits
 * LK_DECIMAL_SIZE bytes as long as the limits are at most 16. */
#define LK_DECIMAL_SIZE 400

/* "-12.5", "3.", "0.0001": zeros at the end are left out. With `least` 0 all digits before the point are the value's
 * own; without it those that make no difference are 0. */
void lk__decimal_positional(double value, lk_dtype dtype, int least, int most, char *text);

/* "1.5e+08", "1.e-05": `least` digits after the point are kept though they be zeros; the exponent has at least
 * `exponent_digits`. */
void lk__decimal_scientific(double value, lk_dtype dtype, int least, int most, int exponent_digits, char *text);

#endif
