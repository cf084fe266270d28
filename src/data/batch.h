/* Batches and the pool that their memory returns to. */
#ifndef LK_DATA_BATCH_H
#define LK_DATA_BATCH_H

#include "lockstep/data.h"

/* Thread-safe; lives until its owner and every batch taken from it have let go. */
typedef struct lk__batch_pool lk__batch_pool;

/* A batch that is being filled: the memory behind lk_batch's read-only pointers. */
typedef struct lk__batch_memory {
    float *images;
    int32_t *labels;
    int64_t *indices;
} lk__batch_memory;

/* `initial` batches of up to `samples` samples of `pixels` values each; 0: without images. Errors: LK_ERR_MEMORY. */
lk_status lk__batch_pool_new(int64_t samples, int64_t pixels, int initial, lk__batch_pool **pool);
void lk__batch_pool_release(lk__batch_pool *pool);

/* An unused batch with one reference, from the pool's stock or newly allocated; it comes back to the stock with its
 * last release. Errors: LK_ERR_MEMORY. */
lk_status lk__batch_pool_take(lk__batch_pool *pool, lk_batch **batch, lk__batch_memory *memory);

#endif
