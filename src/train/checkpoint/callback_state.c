#include "train/checkpoint/callback_state.h"

#include "base/log.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

double lk__state_number(const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text)
        return json_is_number(value) ? json_number_value(value) : NAN;
    return strcmp(text, "Infinity") == 0 ? INFINITY : strcmp(text, "-Infinity") == 0 ? -INFINITY : NAN;
}

int64_t lk__state_integer(double number)
{
    const double most = 0x1p53;
    return isnan(number) ? 0 : (int64_t)fmax(fmin(number, most), -most);
}

int64_t lk_state_get(const lk_state *state, const char *name, double *values, int64_t n)
{
    const json_t *list = json_object_get(state->in, name);
    if (!json_is_array(list))
        return -1;
    int64_t count = (int64_t)json_array_size(list);
    for (int64_t i = 0; i < n && i < count; i++)
        values[i] = lk__state_number(json_array_get(list, (size_t)i));
    return count;
}

const char *lk_state_get_text(const lk_state *state, const char *name)
{
    return json_string_value(json_object_get(state->in, name));
}

enum { METRICS = 6 };

void lk__state_set_metrics(lk_state *state, const char *name, const lk_metrics *m)
{
    const double values[METRICS] = {m->loss.sum,  (double)m->loss.count, m->accuracy.sum, (double)m->accuracy.count,
                                    m->top_k.sum, (double)m->top_k.count};
    lk_state_set(state, name, values, METRICS);
}

bool lk__state_get_metrics(const lk_state *state, const char *name, lk_metrics *m)
{
    double v[METRICS];
    if (lk_state_get(state, name, v, METRICS) != METRICS)
        return false;
    *m =
        (lk_metrics){{v[0], lk__state_integer(v[1])}, {v[2], lk__state_integer(v[3])}, {v[4], lk__state_integer(v[5])}};
    return true;
}

void lk__state_set_mark(lk_state *state, lk_file_mark mark)
{
    if (mark.bytes < 0)
        return;
    lk_state_set(state, "bytes", (double[]){(double)mark.bytes}, 1);
    lk__json_hash(state->out, "xxh3", mark.hash);
}

bool lk__state_has_mark(const lk_state *state, const char *path, int64_t *bytes)
{
    double size;
    const char *hash = lk_state_get_text(state, "xxh3");
    if (!hash || lk_state_get(state, "bytes", &size, 1) != 1)
        return false;
    lk_file_mark mark = {.bytes = lk__state_integer(size), .hash = strtoull(hash, NULL, 16)};
    *bytes = mark.bytes;
    bool has = lk__file_has_mark(path, mark);
    if (!has && access(path, F_OK) == 0)
        lk__log(LK_LOG_WARNING, "%s: is not the file that was there when the checkpoint was made; records begin anew",
                path);
    return has;
}
