/* conv2d, relu and pooling as one operator, so that the results between them need not be stored. */
#pragma once

#include "ops/ops.h"

/* Calls conv_block. On a tape its gradient is conv_block_grad. bias may be NULL.
 * Errors: those of conv2d and of pooling; LK_ERR_ARGUMENT (windows overlap). */
lk_tensor *lk__conv_block(lk_call_site at, lk_tensor *x, lk_tensor *w, lk_tensor *bias,
                          const lk_conv_block_attrs *attrs);
