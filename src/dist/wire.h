/* What the first frame of every message looks like: a header, then one structure of a size that its kind fixes. Numbers
 * are in the machine's byte order, which the header shows; a machine of the other one is refused. Whatever arrives is
 * looked at here before anybody uses it: what another program sends, or a damaged message, is an error that names what
 * is wrong. */
#ifndef LK_DIST_WIRE_H
#define LK_DIST_WIRE_H

#include "dist/requests.h"

#include <stdint.h>

enum { LK_WIRE_MAGIC = 0x4c4b5750, LK_WIRE_VERSION = 4 };

typedef struct lk_wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t number; /* a request's, which its reply repeats */
} lk_wire_header;

/* Errors: LK_ERR_FORMAT. */
lk_status lk__wire_header(const lk_mail *mail, lk_wire_header *header);

/* Copies the structure of `bytes` behind the header, whose kind is `kind`; as many frames follow as `least` to `most`.
 * what: the kind in words. Errors: LK_ERR_FORMAT. */
lk_status lk__wire_body(const lk_mail *mail, int kind, const char *what, void *body, size_t bytes, int least, int most);

/* Frame `i` behind the structure, from 0, which has to have so many bytes. Errors: LK_ERR_FORMAT. */
lk_status lk__wire_frame(const lk_mail *mail, int i, const char *what, size_t bytes, const void **data);

/* The text of frame `i`, cut off at size - 1 bytes; what a terminal would obey is replaced. */
void lk__wire_text(const lk_mail *mail, int i, char *text, size_t size);

/* Text in a structure from outside, of `size` bytes, that messages quote: ends it, and replaces what a terminal would
 * obey. */
void lk__wire_tame(char *text, size_t size);

/* The first frame of a message that is to be sent: header and structure. */
enum { LK_WIRE_BODY = 256 };

typedef struct lk_wire_first {
    lk_wire_header header;
    unsigned char body[LK_WIRE_BODY];
    size_t bytes; /* of the frame; not sent */
} lk_wire_first;

lk_frame lk__wire_first(lk_wire_first *first, int kind, uint64_t number, const void *body, size_t bytes);

#endif
