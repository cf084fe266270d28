/* Reads files that hold records as JSON. */
#pragma once

#include "io/bytes.h"

#include <jansson.h>
#include <string.h>
#include <sys/types.h>

enum { LK_RECORD_MOST = 64 << 20, LK_RECORD_SEEN = 32 };

/* Reads a whole regular file into `text`; free that in any case. Errors: LK_ERR_NOT_FOUND, LK_ERR_IO, LK_ERR_FORMAT
 * (more than `most` bytes), LK_ERR_MEMORY. */
lk_status lk__record_load(const char *path, size_t most, lk_bytes *text);

/* Parses a line of JSON; free *object with json_decref. number: of the line, for messages; 0: the text is the whole
 * file. Errors: LK_ERR_FORMAT. */
lk_status lk__record_parse(const char *path, long long number, const char *text, size_t length, json_t **object);

/* How far a file of lines, which grows, has been read. A zeroed one is at its beginning. */
typedef struct lk_record_tail {
    int64_t offset; /* behind the last line that was read */
    long long lines;
    dev_t device;
    ino_t inode;
    unsigned char seen[LK_RECORD_SEEN]; /* the last bytes that were read, up to that many */
} lk_record_tail;

/* Takes the lines of a file. */
typedef struct lk_record_reader {
    void (*restart)(void *user); /* forget all lines: the file is another one, or was cut */
    lk_status (*take)(void *user, const char *line, size_t length, long long number);
    void *user;
} lk_record_reader;

/* Reads what has come behind the tail, and moves it. A last line without a line break, which a program is writing or a
 * killed one has left, stays. The first error of `take` ends it, with the tail before that line. Errors also: those of
 * lk__record_load with LK_RECORD_MOST. */
lk_status lk__record_follow(lk_record_tail *tail, const char *path, const lk_record_reader *reader);
