/* IDX: the file format of MNIST. Two zero bytes, a type, the number of dimensions, each dimension as a big-endian
 * 32-bit number, then the items, the last dimension running fastest. Here only unsigned bytes (type 0x08). */
#ifndef LK_DATA_IDX_H
#define LK_DATA_IDX_H

#include "lockstep/status.h"

#include <stddef.h>
#include <stdint.h>

enum { LK__IDX_MAX_DIMS = 4 };

typedef struct lk__idx {
    int dims;
    int64_t dim[LK__IDX_MAX_DIMS];
    const uint8_t *data; /* product of dim bytes, inside one of the following */
    const uint8_t *mapping;
    size_t mapping_size;
    uint8_t *decoded;
} lk__idx;

/* Maps a plain file, decodes a gzip-compressed one. The size in the header is checked against the file before memory is
 * taken for it; a decoded file takes memory as it turns out to be that long.
 * Errors, with the path in the message: LK_ERR_IO, LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__idx_open(const char *path, int min_dims, int max_dims, lk__idx *idx);
void lk__idx_close(lk__idx *idx);

#endif
