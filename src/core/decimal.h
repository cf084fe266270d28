/* Decimal texts of floating-point values: the shortest digits that read back as the same value of the element's own
 * dtype, chosen as NumPy's print() does. */
#pragma once

#include "lockstep/tensor.h"

#include <stddef.h>

/* `value` must be finite and a value of `dtype`: f32, bf16 or f64. The text has at least `least` and at most `most`
 * digits after the point; a value with more is rounded. A negative limit means none. The point is '.' in any locale. A
 * text fits LK_DECIMAL_SIZE bytes if the limits are at most 16. */
#define LK_DECIMAL_SIZE 400

/* "-12.5", "3.", "0.0001": trailing zeros are left out. With `least` 0 every digit before the point is the value's own;
 * with a negative `least`, digits that make no difference are written as 0. */
void lk__decimal_positional(double value, lk_dtype dtype, int least, int most, char *text);

/* "1.5e+08", "1.e-05": the first `least` digits after the point are kept even if they are zeros. The exponent has at
 * least `exponent_digits` digits. */
void lk__decimal_scientific(double value, lk_dtype dtype, int least, int most, int exponent_digits, char *text);
