/* Writes safetensors files. */
#pragma once

#include "lockstep/status.h"
#include "lockstep/tensor.h"

#include <stdint.h>

typedef struct lk_safetensors_entry {
    const char *name;
    lk_shape shape;
    const float *values;
} lk_safetensors_entry;

/* Writes a file of f32 tensors, in this order, and flushes it to disk. The names must differ.
 * metadata: pairs of key and text, ended by NULL; NULL: none.
 * *bytes, *hash: size and XXH3-64 of the whole file. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__safetensors_write(const char *path, const lk_safetensors_entry *entries, int n,
                                const char *const *metadata, int64_t *bytes, uint64_t *hash);
