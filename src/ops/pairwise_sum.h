#pragma once

#include "ops/ops.h"

/* pairwise_sum: (x0, …, xn-1) → ((x0 + x1) + (x2 + x3)) + …; n is 2, 4, 8 or 16; f32 or f64, one shape. Each addition
 * is rounded, so this is a whole subtree of a sum over shards in one pass over memory. It is not recorded on tapes. */
enum { LK_MAX_PAIRWISE = 16 };
lk_tensor *lk__pairwise_sum(lk_call_site at, lk_tensor *const *x, int n);
