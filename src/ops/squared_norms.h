/* Norms of gradients and parameters: see ops/update.h. */
#pragma once

#include "ops/update.h"

lk_tensor *lk__squared_norms(lk_call_site at, lk_tensor *x, lk_tensor *offsets);

/* Checks the values of `offsets`; kernels call it, because the values are not known earlier. Errors: LK_ERR_ARGUMENT
 * (segments that descend or leave [0, count)). */
lk_status lk__check_segments(const char *op, const int64_t *offsets, int64_t n, int64_t count);

/* skip, scale and norm are written into the tensors that *scales has, and are new where it has none. norms->skip may be
 * scales->skip. */
lk_status lk__update_scales(lk_call_site at, const lk_update_norms *norms, const lk_update_scales_attrs *attrs,
                            lk_update_scales *scales);
