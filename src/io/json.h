/* JSON, without spaces, at the end of an lk__bytes. A comma goes before what is not the first of its object or array.
 * Whether memory sufficed is asked once, of the bytes. */
#ifndef LK_IO_JSON_H
#define LK_IO_JSON_H

#include "io/bytes.h"
#include "lockstep/record.h"

/* bracket: '{' or '['. name: of the member that it is; NULL: an element of an array, or the whole. */
void lk__json_open(lk__bytes *out, const char *name, char bracket);

/* A member; without a name an element. Values are written as LK_ROWS_JSON says. */
void lk__json_field(lk__bytes *out, lk_field field);

/* bracket: '}' or ']'. */
void lk__json_close(lk__bytes *out, char bracket);

/* The whole as a text, which is the caller's; NULL, with `out` freed, where memory did not suffice. */
char *lk__json_text(lk__bytes *out);

#endif
