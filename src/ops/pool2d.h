/* The shape of pooling, for the operators that contain it. */
#pragma once

#include "ops/support.h"

/* Sets *y to the shape of a pooling's result. Padding is at most half the kernel, so every window holds an element of
 * x.
 * Errors: LK_ERR_SHAPE, LK_ERR_ARGUMENT (an option out of range). */
lk_status lk__pool2d_shape(const char *op, lk_shape x, const lk_pool2d_opts *opts, lk_shape *y);
