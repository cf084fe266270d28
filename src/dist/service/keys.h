/* Keys decide who may take part. A folder holds a file NAME.key for each process, with its public and secret key, and
 * the file `allowed` with all public keys. A machine needs copies of its own process's .key file and of `allowed`. Keys
 * are for Curve25519, written in Z85 (rfc.zeromq.org/spec/32). */
#pragma once

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

/* Reads a .key file, and `allowed` in the same folder. Errors, with file and line: LK_ERR_NOT_FOUND, LK_ERR_IO,
 * LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__keys_read(const char *path, lk_keys *keys);
void lk__keys_free(lk_keys *keys);
lk_status lk__keys_copy(const lk_keys *keys, lk_keys *copy);

/* The name of an allowed public key; NULL: the key is not allowed. */
const char *lk__keys_find_name(const lk_keys *keys, const char *public_key);

/* The public key with this name; NULL: there is none. */
const char *lk__keys_find_key(const lk_keys *keys, const char *name);

/* Creates the folder, writes folder/NAME.key, readable only by its owner, and adds a line to folder/allowed. Errors:
 * LK_ERR_ARGUMENT (a name that is not fit for a file, or is taken), LK_ERR_FORMAT (folder/allowed), LK_ERR_IO. */
lk_status lk__keys_write(const char *folder, const char *name, const char *public_key, const char *secret_key);
