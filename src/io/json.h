/* Writes JSON, without spaces, to the end of an lk_bytes, and puts the commas itself. A writer checks lk__bytes_status
 * once, at the end. */
#pragma once

#include "io/bytes.h"
#include "lockstep/record.h"

/* Opens an object or array. bracket: '{' or '['. name: the member's; NULL for an array's element or the outermost. */
void lk__json_open(lk_bytes *out, const char *name, char bracket);

/* Writes a member, or an element if the field's name is NULL. Values are written as LK_ROWS_JSON documents. */
void lk__json_field(lk_bytes *out, lk_field field);

/* Writes a member: the hash as 16 hexadecimal digits, in quotes. */
void lk__json_hash(lk_bytes *out, const char *name, uint64_t hash);

/* Returns a field with the value, or with null if the value is not finite. */
lk_field lk__real_or_null(const char *name, double value);

/* Closes what was opened last. bracket: '}' or ']'. */
void lk__json_close(lk_bytes *out, char bracket);

/* Ends the text and returns it; free it with lk__free. NULL, with `out` freed, if memory did not suffice. */
char *lk__json_text(lk_bytes *out);
