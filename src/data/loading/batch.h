/* Batches, and the pool that reuses their memory. */
#pragma once

#include "lockstep/data.h"

/* Thread-safe. Lives until its owner and every batch taken from it have been released. */
typedef struct lk_batch_pool lk_batch_pool;

/* The memory behind lk_batch's read-only pointers, for the thread that fills the batch. */
typedef struct lk_batch_memory {
    float *images;
    int32_t *labels;
    int64_t *indices;
} lk_batch_memory;

/* Starts with `initial` batches of up to `samples` samples of `pixels` values each; pixels 0: without images.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__batch_pool_new(int64_t samples, int64_t pixels, int initial, lk_batch_pool **pool);
void lk__batch_pool_release(lk_batch_pool *pool);

/* Gives a free batch, or a new one if none is free, with one reference. Its last release returns it to the pool.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__batch_pool_take(lk_batch_pool *pool, lk_batch **batch, lk_batch_memory *memory);
