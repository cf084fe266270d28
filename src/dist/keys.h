/* Who may take part: a folder holds a file NAME.key for each process, with its public and its secret key, and the file
 * `allowed`, which lists the public keys of all. Copies of a process's own .key and of `allowed` are what its machine
 * needs. Keys are Curve25519's, written in Z85 (rfc.zeromq.org/spec/32). */
#ifndef LK_DIST_KEYS_H
#define LK_DIST_KEYS_H

#include "lockstep/status.h"

#include <stdbool.h>

enum { LK_KEY_TEXT = 41, LK_KEY_NAME = 64 };

typedef struct lk_allowed_key {
    char key[LK_KEY_TEXT], name[LK_KEY_NAME];
} lk_allowed_key;

typedef struct lk_keys {
    char public_key[LK_KEY_TEXT], secret_key[LK_KEY_TEXT];
    lk_allowed_key *allowed; /* [n] */
    int n;
} lk_keys;

/* Reads a .key file, and `allowed` beside it. Errors, with file and line: LK_ERR_NOT_FOUND, LK_ERR_IO, LK_ERR_FORMAT,
 * LK_ERR_MEMORY. */
lk_status lk__keys_read(const char *path, lk_keys *keys);
void lk__keys_free(lk_keys *keys);
lk_status lk__keys_copy(const lk_keys *keys, lk_keys *copy);

/* The name under which a public key is allowed; NULL: it is not. */
const char *lk__keys_find(const lk_keys *keys, const char *public_key);

/* The public key of that name; NULL: there is none. */
const char *lk__keys_named(const lk_keys *keys, const char *name);

/* Writes folder/NAME.key, for its owner alone, and adds a line to folder/allowed. Makes the folder. Errors:
 * LK_ERR_ARGUMENT (a name that is no file name, or is taken), LK_ERR_IO. */
lk_status lk__keys_write(const char *folder, const char *name, const char *public_key, const char *secret_key);

#endif
