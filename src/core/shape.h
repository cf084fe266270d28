/* Counting, comparing and printing shapes. */
#pragma once

#include "base/status.h"
#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set *count to the product of the sizes, and *bytes to that times the dtype's size. Both check for overflow. */
lk_status lk__shape_count(lk_shape shape, int64_t *count);
lk_status lk__shape_bytes(lk_shape shape, lk_dtype dtype, size_t *bytes);
bool lk__shape_equal(lk_shape a, lk_shape b);
void lk__shape_strides(lk_shape shape, int64_t *strides); /* row-major */

/* Writes "[32,1,28,28]". */
void lk__shape_text(lk_shape shape, char *text, size_t size);

/* The same text by value: lk__text(shape).string lives until the end of the full expression (C11 6.2.4p8). */
typedef struct lk_shape_text {
    char string[128];
} lk_shape_text;

lk_shape_text lk__text(lk_shape shape);

/* Sets *normal to the axis in [0, ndim); a negative `axis` counts from the end. Errors name `op`. */
lk_status lk__axis(const char *op, int axis, int ndim, int *normal);
