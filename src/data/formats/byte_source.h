/* A file as a stream of bytes. It is mapped into memory and, if gzip-compressed, decoded as it is read. */
#pragma once

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

typedef struct lk_byte_source {
    const uint8_t *bytes; /* the file as it is on disk; NULL when it is empty */
    size_t size;
    size_t position; /* bytes read so far; decoded bytes for gzip */
    bool gzip;
    bool ended; /* gzip: the last member's checksum was right and nothing follows it */
    z_stream stream;
    bool cut;          /* gzip: the last read failed because the file ends in the middle of the data */
    char problem[192]; /* why the last call failed, without the path */
} lk_byte_source;

/* Maps the file. Data that begin with the gzip magic are decoded; a file whose name ends in .gz must begin with it.
 * After a failure there is nothing to close. Errors, with the reason in `problem`: LK_ERR_IO, LK_ERR_FORMAT,
 * LK_ERR_MEMORY. */
lk_status lk__byte_source_open(const char *path, lk_byte_source *source);

/* Copies the next `count` bytes; *got is smaller only at the end of the content. The checksum of a gzip member is
 * verified when its end is read. Errors: LK_ERR_FORMAT (damaged, truncated or followed by garbage), LK_ERR_MEMORY. */
lk_status lk__byte_source_read(lk_byte_source *source, void *bytes, size_t count, size_t *got);

/* Closes the source but leaves source->bytes mapped: the caller now owns the mapping, and ends it with
 * lk__byte_source_unmap. */
void lk__byte_source_close_keep_mapping(lk_byte_source *source);
void lk__byte_source_close(lk_byte_source *source);
void lk__byte_source_unmap(const uint8_t *bytes, size_t size);
