/* The state of callbacks, saved in state.json under a member for each callback. */
#pragma once

#include "io/append_file.h"
#include "io/bytes.h"
#include "lockstep/train.h"

#include <jansson.h>

struct lk_state {
    lk_bytes *out;    /* saving: the JSON is written here; NULL: restoring */
    const json_t *in; /* restoring: the callback's object; NULL: nothing was saved */
};

/* Reads a number as io/json.c writes it, infinities included. Returns NaN if the value is not a number. */
double lk__state_number(const json_t *value);

/* Converts a number of a saved state to an integer. A damaged checkpoint may hold anything: NaN gives 0, and a number
 * beyond those that doubles count up to gives the last one of them. */
int64_t lk__state_integer(double number);

/* Saves and reads metrics. The second gives false, and leaves *m as it is, if there are none of that name. */
void lk__state_set_metrics(lk_state *state, const char *name, const lk_metrics *m);
bool lk__state_get_metrics(const lk_state *state, const char *name, lk_metrics *m);

/* Saves the mark of a file of records. */
void lk__state_set_mark(lk_state *state, lk_file_mark mark);

/* Returns whether the file at `path` begins with the saved mark; *bytes is then the mark's size. If there is another
 * file, a warning says that the records begin anew. */
bool lk__state_has_mark(const lk_state *state, const char *path, int64_t *bytes);
