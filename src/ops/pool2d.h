/* The shape of pooling, for the operators that contain it. */
#pragma once

#include "ops/support.h"

/* Sets *y to the shape of a pooling's result. Padding is at most half the kernel, so every window holds an element of
 * x.
 * Errors: LK_ERR_SHAPE, LK_ERR_ARGUMENT (an option out of range). */
lk_status lk__pool2d_shape(const char *op, lk_shape x, const lk_pool2d_opts *opts, lk_shape *y);

/* Returns whether windows neither overlap nor have padding, and have at most LK_POOL_TAPS elements, so that a byte can
 * say which one is the maximum. */
bool lk__pool2d_has_taps(const lk_pool2d_opts *opts);

/* Fails unless they are so. */
lk_status lk__pool2d_check_taps(const char *op, const lk_pool2d_opts *opts);
