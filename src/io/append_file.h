/* Files that only ever hold whole records, and files that are replaced as a whole. */
#ifndef LK_IO_APPEND_FILE_H
#define LK_IO_APPEND_FILE_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk__append_file {
    int fd; /* also for reading */
    char *path;
    int64_t whole;             /* bytes of whole records */
    bool torn;                 /* bytes of a failed record lie behind them */
    bool regular;              /* a file that can be cut; not a terminal or a pipe */
    struct XXH3_state_s *hash; /* of the first `hashed` bytes; NULL: of none */
    int64_t hashed;
} lk__append_file;

/* flags: O_EXCL, O_TRUNC or 0. Errors: LK_ERR_IO (with O_EXCL errno is EEXIST where there is a file), LK_ERR_MEMORY. */
lk_status lk__append_open(lk__append_file *file, const char *path, int flags);
void lk__append_close(lk__append_file *file);

/* Adds all of a record, or none of it. */
lk_status lk__append(lk__append_file *file, const void *data, size_t size);

/* Takes out what lies behind the first `size` bytes. */
lk_status lk__append_cut(lk__append_file *file, int64_t size);

/* What a file holds, so that it is known again, wherever it lies then. */
typedef struct lk__file_mark {
    int64_t bytes; /* -1: of a file that cannot be read */
    uint64_t hash; /* XXH3-64 of them */
} lk__file_mark;

/* Of the whole records so far. Reads what has come since the mark before. */
lk__file_mark lk__append_mark(lk__append_file *file);

/* Whether the file begins with what was marked. */
bool lk__file_has_mark(const char *path, lk__file_mark mark);

lk_status lk__append_sync(lk__append_file *file);

/* Writes a file beside `path` and renames it into place. */
lk_status lk__replace_file(const char *path, const void *data, size_t size);

#endif
