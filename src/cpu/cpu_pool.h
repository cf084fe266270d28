/* What average and maximum pooling have in common. */
#ifndef LK_CPU_CPU_POOL_H
#define LK_CPU_CPU_POOL_H

#include "cpu/cpu_prepared.h"
#include "lockstep/ops.h"

/* What tells one pooling, or gradient of one, from another. */
void lk__pool_key(lk_key *key, const lk_call *call, const lk_pool2d_opts *opts);

/* Sets the prepared call's problem; `x` is the shape of what is pooled. */
void lk__pool_describe(lk_prepared *prepared, lk_shape x, const lk_pool2d_opts *opts);

#endif
