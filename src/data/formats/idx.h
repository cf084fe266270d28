/* IDX, the file format of MNIST: two zero bytes, a type, the number of dimensions, each dimension as a big-endian
 * 32-bit number, then the items, the last dimension running fastest. Only unsigned bytes (type 0x08) are read. */
#pragma once

#include "lockstep/status.h"

#include <stddef.h>
#include <stdint.h>

enum { LK__IDX_MAX_DIMS = 4 };

typedef struct lk_idx {
    int dims;
    int64_t dim[LK__IDX_MAX_DIMS];
    const uint8_t *data; /* product of dim bytes, inside `mapping` or `decoded` */
    const uint8_t *mapping;
    size_t mapping_size;
    uint8_t *decoded;
} lk_idx;

/* Maps a plain file, and decodes a gzip-compressed one. The size in the header is not trusted: for a plain file it is
 * checked against the file, and a compressed one gets memory only as fast as decoded bytes arrive.
 * Errors, with the path in the message: LK_ERR_IO, LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__idx_open(const char *path, int min_dims, int max_dims, lk_idx *idx);
void lk__idx_close(lk_idx *idx);
