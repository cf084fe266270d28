/* Files that grow by whole records, and files that are replaced as a whole. */
#pragma once

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk_append_file {
    int fd; /* opened for writing, and for reading where permissions allow it */
    char *path;
    int64_t whole;             /* bytes of whole records */
    bool torn;                 /* part of a failed record follows the whole ones */
    bool regular;              /* a file that can be truncated; not a terminal or a pipe */
    bool is_name_flushed;      /* the name of the file is on disk */
    struct XXH3_state_s *hash; /* of the first `hashed` bytes; NULL: nothing is hashed yet */
    int64_t hashed;
} lk_append_file;

/* Opens a file, and locks it to show that it is written; a lock that another process has is no error. flags: O_EXCL,
 * O_TRUNC or 0. Errors: LK_ERR_IO (errno is set: EEXIST if O_EXCL finds a file), LK_ERR_MEMORY. */
lk_status lk__append_open(lk_append_file *file, const char *path, int flags);
void lk__append_close(lk_append_file *file);

/* Returns whether a process has the file open to append to it. Another file system than a local one may not say so. */
bool lk__append_is_held(const char *path);

/* Appends a record. On failure none of it stays in the file. */
lk_status lk__append(lk_append_file *file, const void *data, size_t size);

/* Truncates the file to `size` bytes, which must be whole records. */
lk_status lk__append_cut(lk_append_file *file, int64_t size);

/* Identifies a file by its contents, so that it can be recognized after it was moved or appended to. */
typedef struct lk_file_mark {
    int64_t bytes; /* -1: the file cannot be read */
    uint64_t hash; /* XXH3-64 of these bytes */
} lk_file_mark;

/* Marks the whole records so far, and flushes them to disk, so that a loss of power does not take what a checkpoint
 * with the mark counts on. Reads only what was appended since the previous mark. */
lk_file_mark lk__append_mark(lk_append_file *file);

/* Returns whether the file begins with the marked bytes. */
bool lk__file_has_mark(const char *path, lk_file_mark mark);

/* Flushes the records to disk. Errors: LK_ERR_IO. */
lk_status lk__append_sync(lk_append_file *file);

/* Writes a temporary file next to `path` and renames it to `path`, so that readers see the old or the new contents. If
 * `path` is a link, its target is replaced; into a pipe or another stream the bytes are written. Does not flush to
 * disk; see lk__durable_write. Errors: LK_ERR_IO, LK_ERR_ARGUMENT (the path is too long). */
lk_status lk__replace_file(const char *path, const void *data, size_t size);
