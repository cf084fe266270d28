/* Reductions, for gradients. */
#pragma once

#include "ops/ops.h"

/* lk_sum_at with the attribute f32: see ops.h. */
lk_tensor *lk__sum(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts, bool f32);
