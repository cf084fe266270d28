/* A file as a stream of bytes, mapped into memory and decoded on the way where it is gzip-compressed. */
#ifndef LK_DATA_BYTE_SOURCE_H
#define LK_DATA_BYTE_SOURCE_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

typedef struct lk__byte_source {
    const uint8_t *bytes; /* the file as it is on disk; NULL when it is empty */
    size_t size;
    size_t position; /* bytes read so far; of the decoded content for gzip */
    bool gzip;
    bool ended; /* gzip: the last member's checksum was right and nothing follows it */
    z_stream stream;
    bool cut;          /* gzip: the last call failed where the file ends in the middle of the data */
    char problem[192]; /* why the last call failed, without the path */
} lk__byte_source;

/* Maps the file. Data that begin with the gzip magic are decoded; a name that ends in .gz must have it. After a failure
 * there is nothing to close. Errors, with the reason in `problem`: LK_ERR_IO, LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__byte_source_open(const char *path, lk__byte_source *source);

/* Copies the next `count` bytes; *got is smaller only at the end of the content. Checksums of gzip members are verified
 * when their end is read. Errors: LK_ERR_FORMAT (damaged, truncated or followed by garbage), LK_ERR_MEMORY. */
lk_status lk__byte_source_read(lk__byte_source *source, void *bytes, size_t count, size_t *got);

/* Gives the mapping away: it is the caller's to lk__byte_source_unmap. */
void lk__byte_source_close_keep_mapping(lk__byte_source *source);
void lk__byte_source_close(lk__byte_source *source);
void lk__byte_source_unmap(const uint8_t *bytes, size_t size);

#endif
