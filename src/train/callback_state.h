/* What callbacks remember, as members of state.json. */
#ifndef LK_TRAIN_CALLBACK_STATE_H
#define LK_TRAIN_CALLBACK_STATE_H

#include "io/append_file.h"
#include "io/bytes.h"
#include "lockstep/train.h"

#include <jansson.h>

struct lk_state {
    lk__bytes *out;   /* written to; NULL: read from */
    const json_t *in; /* an object, or NULL: nothing is there */
};

/* A number as io/json.c writes it, those that JSON does not have too; NaN: it is none. */
double lk__state_number(const json_t *value);

/* What a file of records holds so far. */
void lk__state_set_mark(lk_state *state, lk__file_mark mark);

/* Whether a file still begins with that; *bytes of it. Where another file is there a warning says so. */
bool lk__state_has_mark(const lk_state *state, const char *path, int64_t *bytes);

#endif
