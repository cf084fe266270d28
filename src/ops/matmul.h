/* The product of matrices, for gradients. */
#pragma once

#include "ops/ops.h"

/* lk_matmul_at with the attribute f32: see ops.h. */
lk_tensor *lk__matmul(lk_call_site at, lk_tensor *a, lk_tensor *b, bool f32);
