#include "train/callback_state.h"

#include "io/json.h"

#include <math.h>
#include <string.h>

void lk_state_set(lk_state *state, const char *name, const double *values, int64_t n)
{
    lk__json_open(state->out, name, '[');
    for (int64_t i = 0; i < n; i++)
        lk__json_field(state->out, LK_REAL(NULL, values[i]));
    lk__json_close(state->out, ']');
}

void lk_state_set_text(lk_state *state, const char *name, const char *text)
{
    lk__json_field(state->out, LK_TEXT(name, text));
}

/* JSON has no such numbers: io/json.c writes them as texts. */
static double number_of(const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text)
        return json_is_number(value) ? json_number_value(value) : NAN;
    return strcmp(text, "Infinity") == 0 ? INFINITY : strcmp(text, "-Infinity") == 0 ? -INFINITY : NAN;
}

int64_t lk_state_get(const lk_state *state, const char *name, double *values, int64_t n)
{
    const json_t *list = json_object_get(state->in, name);
    if (!json_is_array(list))
        return -1;
    int64_t count = (int64_t)json_array_size(list);
    for (int64_t i = 0; i < n && i < count; i++)
        values[i] = number_of(json_array_get(list, (size_t)i));
    return count;
}

const char *lk_state_get_text(const lk_state *state, const char *name)
{
    return json_string_value(json_object_get(state->in, name));
}
