/* Reads files that hold records as JSON. */
#pragma once

#include "io/bytes.h"

#include <jansson.h>
#include <string.h>

enum { LK_RECORD_MOST = 64 << 20 };

/* Reads a whole regular file into `text`; free that in any case. Errors: LK_ERR_NOT_FOUND, LK_ERR_IO, LK_ERR_FORMAT
 * (more than `most` bytes), LK_ERR_MEMORY. */
lk_status lk__record_load(const char *path, size_t most, lk_bytes *text);

/* Parses a line of JSON; free *object with json_decref. number: of the line, for messages; 0: the text is the whole
 * file. Errors: LK_ERR_FORMAT. */
lk_status lk__record_parse(const char *path, long long number, const char *text, size_t length, json_t **object);
