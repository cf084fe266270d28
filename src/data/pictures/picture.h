/* Reads and decodes one picture file. These functions set no message of the thread: the reason of a failure is in
 * encoded->problem, and the caller adds the file's name. */
#pragma once

#include "data/pictures/codec.h"

/* Buffers that are reused from picture to picture. Zeroes: none yet. */
typedef struct lk_picture_memory {
    uint8_t *file, *decoded, *resized;
    size_t file_bytes, decoded_bytes, resized_bytes;
    int64_t large_file; /* bytes that `file` counts against the limit on large files; 0: `file` is not large */
} lk_picture_memory;

void lk__picture_memory_free(lk_picture_memory *memory);

/* Reads a whole file into memory->file. A large file waits until those of other threads leave it enough of their
 * common limit. Errors, with the reason in `problem`: LK_ERR_IO, LK_ERR_FORMAT (larger than any picture that is
 * decoded), LK_ERR_MEMORY. */
lk_status lk__picture_read_file(const char *path, lk_picture_memory *memory, lk_encoded *encoded);

/* Reads sizes and channels of a picture, and only as much of the file as that takes. Errors as lk__picture_read_file
 * and lk__picture_examine. */
lk_status lk__picture_read_header(const char *path, lk_picture_memory *memory, lk_encoded *encoded, lk_image *image);

/* Sets sizes and channels from the header, and checks them against LK_IMAGE_MAX_PIXELS and LK_IMAGE_MAX_SIDE.
 * Errors as lk_codec.read. */
lk_status lk__picture_examine(lk_encoded *encoded, lk_image *image);

/* Decodes to pixels [channels,height,width] of `wanted`; a picture of another size is resized.
 * Errors as lk_codec.read. */
lk_status lk__picture_decode(lk_encoded *encoded, const lk_image *wanted, lk_picture_memory *memory, uint8_t *pixels);
