/* The buffers of exchanges over links: memory on each device for packed quantities, received chunks and the sums. They
 * are kept from step to step and used for nothing else. A device's allocator knows only the device's own stream, so it
 * must not hand out memory that another stream may still read. */
#pragma once

#include "base/status.h"
#include "lockstep/tensor.h"

#include <stdint.h>

typedef struct lk_exchange_buffers {
    lk_device *const *devices; /* [n]: the owner's, which live as long */
    int n;
    struct lk_exchange_buffer_set *sets; /* NULL at first */
} lk_exchange_buffers;

/* Takes one free buffer of at least `words` words of four bytes on each device, as f32: taken[0 … n), one reference
 * each; releasing the last one frees the buffers for other exchanges. Waits for `links` if a failed exchange was in
 * flight. Errors: LK_ERR_MEMORY. */
lk_status lk__exchange_buffers_take(lk_exchange_buffers *buffers, lk_device *links, int64_t words, lk_tensor **taken);

/* The caller ensures that nothing is in flight. */
void lk__exchange_buffers_release(lk_exchange_buffers *buffers);
