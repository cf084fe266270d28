#include "io/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void json_put_text(lk_bytes *out, const char *text)
{
    lk__bytes_char(out, '"');
    for (uint32_t c; (c = lk__utf8_next(&text));) {
        if (c == '"' || c == '\\')
            lk__bytes_format(out, "\\%c", (char)c);
        else if (c == '\n')
            lk__bytes_text(out, "\\n");
        else if (c == '\t')
            lk__bytes_text(out, "\\t");
        else if (c < 0x20)
            lk__bytes_format(out, "\\u%04x", (unsigned)c);
        else
            lk__bytes_utf8(out, c);
    }
    lk__bytes_char(out, '"');
}

static void json_put_real(lk_bytes *out, double value)
{
    if (isfinite(value))
        lk__bytes_real(out, value);
    else
        lk__bytes_text(out, isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
}

/* The last character written tells whether a comma is needed. */
static void json_begin(lk_bytes *out, const char *name)
{
    char last = out->size > 0 ? (char)out->data[out->size - 1] : '\n';
    if (last != '{' && last != '[' && last != '\n')
        lk__bytes_char(out, ',');
    if (name) {
        json_put_text(out, name);
        lk__bytes_char(out, ':');
    }
}

void lk__json_open(lk_bytes *out, const char *name, char bracket)
{
    json_begin(out, name);
    lk__bytes_char(out, bracket);
}

void lk__json_field(lk_bytes *out, lk_field field)
{
    json_begin(out, field.name);
    if (field.kind == LK_FIELD_INT)
        lk__bytes_format(out, "%" PRId64, field.integer);
    else if (field.kind == LK_FIELD_BOOL)
        lk__bytes_text(out, field.integer ? "true" : "false");
    else if (field.kind == LK_FIELD_REAL)
        json_put_real(out, field.real);
    else if (field.kind == LK_FIELD_TEXT && field.text)
        json_put_text(out, field.text);
    else
        lk__bytes_text(out, "null");
}

void lk__json_hash(lk_bytes *out, const char *name, uint64_t hash)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    lk__json_field(out, LK_TEXT(name, text));
}

lk_field lk__real_or_null(const char *name, double value)
{
    return isfinite(value) ? LK_REAL(name, value) : LK_NONE(name);
}

void lk__json_close(lk_bytes *out, char bracket)
{
    lk__bytes_char(out, bracket);
}

char *lk__json_text(lk_bytes *out)
{
    lk__bytes_char(out, '\0');
    if (lk__bytes_status(out) == LK_OK)
        return (char *)out->data;
    lk__bytes_free(out);
    return NULL;
}
