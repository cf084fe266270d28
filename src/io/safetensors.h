/* Safetensors: eight bytes with the length of a header, little-endian; the header, JSON that says of each tensor its
 * dtype, shape and where its elements are; then these, row-major and little-endian, one tensor behind the other.
 * https://github.com/huggingface/safetensors#format
 *
 * A reader trusts nothing: what is out of place anywhere in the header is an error before anything else is read, and
 * memory is bounded by the header's size, of which there are 8 MiB at most. */
#ifndef LK_IO_SAFETENSORS_H
#define LK_IO_SAFETENSORS_H

#include "io/durable.h"
#include "lockstep/tensor.h"

#include <stdbool.h>

enum { LK_SAFETENSORS_MAX_HEADER = 8 << 20 };

typedef struct lk__safetensor {
    const char *name;
    const char *dtype; /* "F32": what the header says */
    lk_shape shape;
    int64_t count, begin, bytes; /* begin: in the file */
} lk__safetensor;

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef struct lk__safetensors lk__safetensors;

/* Reads the header. Errors: LK_ERR_IO, LK_ERR_FORMAT (with the file, the tensor and what was expected), LK_ERR_MEMORY.
 */
lk_status lk__safetensors_open(const char *path, lk__safetensors **file);
void lk__safetensors_close(lk__safetensors *file);  /* NULL is fine */
void lk__safetensors_retain(lk__safetensors *file); /* for one more who closes it, in any thread */

/* The same of a header in memory, for a file of `size` bytes; tensors cannot be read. path: for messages. */
lk_status lk__safetensors_parse(const char *path, const void *header, size_t bytes, int64_t size,
                                lk__safetensors **file);

/* A file that is in memory as a whole, from lk__alloc_aligned, which is taken, also on failure. */
lk_status lk__safetensors_take(const char *path, unsigned char *data, int64_t size, lk__safetensors **file);

/* Of such a file the elements where they lie; NULL: they are not F32, or lie where no float can. */
const float *lk__safetensors_values(const lk__safetensors *file, const lk__safetensor *tensor);

int lk__safetensors_count(const lk__safetensors *file);
const lk__safetensor *lk__safetensors_at(const lk__safetensors *file, int index); /* in the order of the elements */
const lk__safetensor *lk__safetensors_find(const lk__safetensors *file, const char *name); /* NULL: there is none */
const char *lk__safetensors_metadata(const lk__safetensors *file, const char *key);        /* NULL: likewise */

/* values[tensor->count], of F32, F64, F16 or BF16. Errors: LK_ERR_IO, LK_ERR_FORMAT (another dtype; the file has become
 * shorter). */
lk_status lk__safetensors_read(const lk__safetensors *file, const lk__safetensor *tensor, float *values);

/* --- writing ------------------------------------------------------------------------------------------------------ */

typedef struct lk__safetensors_entry {
    const char *name;
    lk_shape shape;
    const float *values;
} lk__safetensors_entry;

/* Writes f32 tensors with their names, which differ, in this order, and closes the file. metadata: pairs of name and
 * text, ended by NULL; NULL: none. *bytes and *hash (XXH3-64): of the whole file. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__safetensors_write(const char *path, const lk__safetensors_entry *entries, int n,
                                const char *const *metadata, int64_t *bytes, uint64_t *hash);

#endif
