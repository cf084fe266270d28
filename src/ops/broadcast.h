/* NumPy's broadcasting, and its gradient. */
#pragma once

#include "ops/ops.h"

/* The gradient of a broadcast operand of shape `shape`: `t` summed over the axes along which broadcasting repeated the
 * operand. If nothing was repeated, that is `t` itself with a new reference. f32: see ops.h. */
lk_tensor *lk__sum_to(lk_call_site at, lk_tensor *t, lk_shape shape, bool f32);

/* Sets *out to the shape of `a` and `b` broadcast against each other. Errors: LK_ERR_SHAPE. */
lk_status lk__broadcast(const char *op, lk_shape a, lk_shape b, lk_shape *out);
