/* Updates of all parameters of a device, one flat tensor, in one call: see ops/update.h. */
#pragma once

#include "ops/update.h"

/* Returns rates[i], or `otherwise` if `rates` is NULL. For kernels whose operands are in the host's memory. */
double lk__update_rate(const lk_tensor *rates, int i, double otherwise);

lk_status lk__momentum_update(lk_call_site at, lk_tensor *w, lk_tensor *g, lk_tensor *v,
                              const lk_update_control *control, const lk_momentum_attrs *attrs);

lk_status lk__adam_update(lk_call_site at, lk_tensor *w, lk_tensor *g, lk_tensor *m, lk_tensor *v,
                          const lk_update_control *control, const lk_adam_attrs *attrs);

lk_status lk__lars_update(lk_call_site at, lk_tensor *w, lk_tensor *g, lk_tensor *v, const lk_update_segments *segments,
                          const lk_update_control *control, const lk_lars_attrs *attrs);

/* x must be [n], f32 or f64, dense. Errors: LK_ERR_DTYPE, LK_ERR_SHAPE, LK_ERR_ARGUMENT. */
lk_status lk__check_flat(const char *op, const char *operand, const lk_tensor *x);
