/* Copies tensors from the devices of each process to the memory of all others: for devices that the links do not
 * reach, those of lk_backend.modules. */
#pragma once

#include "dist/strategy.h"

typedef struct lk_gathered {
    lk_tensor *value; /* on a device of this process; NULL: that of another process */
    int rank;         /* that has it; like dtype and shape only looked at if there is no value */
    lk_dtype dtype;
    lk_shape shape;
    lk_tensor *copy; /* NULL before. If there is no value, set to a new tensor of the links' queue, which any device can
                        read: one reference */
} lk_gathered;

/* Gathers n tensors, which all processes list in the same order. All processes make the same calls in the same order,
 * among other exchanges too, so after a failure the caller gives up (lk__group_give_up). Asynchronous. The caller
 * releases the copies, also on failure. Errors: LK_ERR_MEMORY. */
lk_status lk__host_gather(lk_call_site at, const lk_strategy *strategy, lk_gathered *tensors, int64_t n);
