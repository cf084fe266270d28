/* The format of a message's first frame: a header, then one structure whose size depends on the kind of message.
 * Numbers are in the machine's byte order; the header shows it, and the other byte order is refused. Every message is
 * checked here before use: one from another program, or a damaged one, gives an error that names what is wrong. */
#pragma once

#include "dist/service/requests.h"

#include <stdint.h>

enum { LK_WIRE_MAGIC = 0x4c4b5750, LK_WIRE_VERSION = 5 };

typedef struct lk_wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t number; /* number of a request, repeated in its reply */
} lk_wire_header;

/* Errors: LK_ERR_FORMAT. */
lk_status lk__wire_header(const lk_mail *mail, lk_wire_header *header);

/* Copies the structure of `bytes` bytes after the header, whose kind must be `kind`, with `least` to `most` frames
 * after it. what: the kind in words. Errors: LK_ERR_FORMAT. */
lk_status lk__wire_body(const lk_mail *mail, int kind, const char *what, void *body, size_t bytes, int least, int most);

/* Gets frame `i` after the structure, counted from 0. It must have `bytes` bytes. Errors: LK_ERR_FORMAT. */
lk_status lk__wire_frame(const lk_mail *mail, int i, const char *what, size_t bytes, const void **data);

/* Copies the text of frame `i`, cut to size - 1 bytes, without characters that control a terminal. */
void lk__wire_text(const lk_mail *mail, int i, char *text, size_t size);

/* Terminates a text of `size` bytes from outside, and replaces characters that control a terminal, so that messages may
 * quote it. */
void lk__wire_tame(char *text, size_t size);

enum { LK_WIRE_BODY = 256 };

typedef struct lk_wire_first {
    lk_wire_header header;
    unsigned char body[LK_WIRE_BODY];
    size_t bytes; /* size of the frame; not sent */
} lk_wire_first;

/* Fills in the first frame of a message to send: the header, and a structure `body` of at most LK_WIRE_BODY bytes. The
 * frame is valid as long as *first. */
lk_frame lk__wire_first(lk_wire_first *first, int kind, uint64_t number, const void *body, size_t bytes);

/* A number, not 0, that tells this process from others. */
uint64_t lk__wire_nonce(void);
