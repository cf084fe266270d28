/* The layout that lk_pack gives tensors. */
#pragma once

#include "base/status.h"
#include "lockstep/tensor.h"

/* Adds the number of elements of `tensor`, with the gap after it, to *elements. Errors: LK_ERR_SHAPE (more than
 * int64). */
lk_status lk__pack_add(const lk_tensor *tensor, int64_t *elements);

/* A view of `packed` from element `begin` on, in `shape`. The reference belongs to the caller, whatever scope is open.
 * NULL on failure. */
lk_tensor *lk__pack_view(lk_call_site at, lk_tensor *packed, int64_t begin, lk_shape shape);
