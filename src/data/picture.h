/* Pictures on their way from a file's bytes to a data set: without messages of the thread, whose place is the caller's
 * to name. */
#ifndef LK_DATA_PICTURE_H
#define LK_DATA_PICTURE_H

#include "data/codec.h"

/* Memory that is kept from picture to picture. Zeroes: none yet. */
typedef struct lk__picture_memory {
    uint8_t *file, *decoded, *resized;
    size_t file_bytes, decoded_bytes, resized_bytes;
    int64_t large_file; /* bytes for which others may have to wait, until the next file or the end; 0: none */
} lk__picture_memory;

void lk__picture_memory_free(lk__picture_memory *memory);

/* Reads a whole file into memory->file; where it is large, when those that other threads hold leave room. Errors, with
 * the reason in `problem`: LK_ERR_IO, LK_ERR_FORMAT (larger than any picture that is decoded), LK_ERR_MEMORY. */
lk_status lk__picture_read_file(const char *path, lk__picture_memory *memory, lk__encoded *encoded);

/* Sizes and channels of a file, of which no more is read than that takes. Errors as of both: lk__picture_read_file and
 * lk__picture_examine. */
lk_status lk__picture_read_header(const char *path, lk__picture_memory *memory, lk__encoded *encoded, lk_image *image);

/* Sizes and channels by the header; checked against LK_IMAGE_MAX_PIXELS. Errors as lk__codec.examine. */
lk_status lk__picture_examine(lk__encoded *encoded, lk_image *image);

/* Decodes to pixels [channels,height,width] of `wanted`, whose sizes are those of the file where nothing is resized.
 * Errors as lk__codec.decode. */
lk_status lk__picture_decode(lk__encoded *encoded, const lk_image *wanted, lk__picture_memory *memory, uint8_t *pixels);

#endif
