/* How lk_pack lays tensors out. */
#ifndef LK_OPTIM_PACK_H
#define LK_OPTIM_PACK_H

#include "base/status.h"
#include "lockstep/tensor.h"

/* Adds the elements of `tensor`, and of the gap after it, to *elements. Errors: LK_ERR_SHAPE (more than int64). */
lk_status lk__pack_add(const lk_tensor *tensor, int64_t *elements);

/* The part of `flat` from element `begin` on, in `shape`: a view whose reference is the caller's, whatever scope is
 * open. NULL on failure. */
lk_tensor *lk__pack_view(lk_place at, lk_tensor *flat, int64_t begin, lk_shape shape);

#endif
