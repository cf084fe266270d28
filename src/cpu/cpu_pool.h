/* Keys and texts that average and maximum pooling share. */
#pragma once

#include "cpu/onednn/cpu_prepared.h"
#include "lockstep/ops.h"

/* Sets the key of a pooling or of the gradient of one. */
void lk__pool_key(lk_key *key, const lk_call *call, const lk_pool2d_opts *opts);

/* Sets the problem of a prepared call. dtype, x: the dtype and shape of the tensor that is pooled. */
void lk__pool_describe(lk_prepared *prepared, lk_dtype dtype, lk_shape x, const lk_pool2d_opts *opts);
