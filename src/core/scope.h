/* Scopes: tensors adopted by the innermost open scope of a thread are released when it ends (lk_scope_begin). */
#pragma once

#include "core/tensor.h"

/* Hands the caller's reference to the innermost scope, if one is open. Returns the tensor, or NULL, with the tensor
 * released, if the scope could not grow. */
lk_tensor *lk__scope_adopt(lk_tensor *tensor);

/* For functions that return several tensors: given the `status` of making them and a reference to each, hands the
 * references to the open scope or, on failure, releases them and sets every entry to NULL. NULL entries are fine.
 * Returns the status. */
lk_status lk__scope_adopt_all(lk_tensor **tensors, int64_t n, lk_status status);
