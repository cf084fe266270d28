/* What callbacks remember, as members of state.json. */
#ifndef LK_TRAIN_CALLBACK_STATE_H
#define LK_TRAIN_CALLBACK_STATE_H

#include "io/bytes.h"
#include "lockstep/train.h"

#include <jansson.h>

struct lk_state {
    lk__bytes *out;   /* written to; NULL: read from */
    const json_t *in; /* an object, or NULL: nothing is there */
};

#endif
