/* Reads safetensors files. Such a file begins with the length of a header in eight little-endian bytes. The header is
 * JSON that gives each tensor's dtype, shape and offsets. The elements follow, row-major and little-endian, one tensor
 * after the other. https://github.com/huggingface/safetensors#format
 *
 * The reader trusts nothing: any inconsistency in the header is an error before an element is read, and memory is
 * bounded by the header's size, at most 32 MiB. */
#pragma once

#include "lockstep/status.h"
#include "lockstep/tensor.h"

enum { LK_SAFETENSORS_MAX_HEADER = 32 << 20 };

typedef struct lk_safetensor {
    const char *name;
    const char *dtype; /* as in the header: "F32" */
    lk_shape shape;
    int64_t count;        /* elements */
    int64_t begin, bytes; /* begin: offset in the file */
} lk_safetensor;

typedef struct lk_safetensors lk_safetensors;

/* Opens a file and reads its header. Errors: LK_ERR_IO, LK_ERR_MEMORY, LK_ERR_FORMAT (the message names the file, the
 * tensor and what was expected). */
lk_status lk__safetensors_open(const char *path, lk_safetensors **file);

/* Parses a header in memory, of a file of `size` bytes. Its tensors cannot be read. path: for messages. */
lk_status lk__safetensors_parse(const char *path, const void *header, size_t bytes, int64_t size,
                                lk_safetensors **file);

/* Opens a whole file in memory. Takes `data`, which is from lk__alloc_aligned, also on failure. path: for messages. */
lk_status lk__safetensors_take(const char *path, unsigned char *data, int64_t size, lk_safetensors **file);

/* Adds a reference, in any thread. Close drops one; the last frees. NULL is fine for close. */
void lk__safetensors_retain(lk_safetensors *file);
void lk__safetensors_close(lk_safetensors *file);

int lk__safetensors_count(const lk_safetensors *file);
const lk_safetensor *lk__safetensors_at(const lk_safetensors *file, int index); /* in the order of their elements */
const lk_safetensor *lk__safetensors_find(const lk_safetensors *file, const char *name); /* NULL: no such tensor */
const char *lk__safetensors_metadata(const lk_safetensors *file, const char *key);       /* NULL: no such key */

/* Converts a tensor's elements, F32, F64, F16 or BF16, to values[tensor->count]. Errors: LK_ERR_IO, LK_ERR_STATE (only
 * the header was given), LK_ERR_FORMAT (another dtype, or the file has become shorter). */
lk_status lk__safetensors_read(const lk_safetensors *file, const lk_safetensor *tensor, float *values);

/* Returns the elements inside a file from lk__safetensors_take. NULL if they are not F32 or not aligned for float; then
 * use lk__safetensors_read. */
const float *lk__safetensors_values(const lk_safetensors *file, const lk_safetensor *tensor);
