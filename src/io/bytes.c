#include "io/bytes.h"

#include "base/mem.h"
#include "base/number.h"
#include "core/decimal.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CAPACITY = 256, REPLACEMENT = 0xFFFD };

static bool bytes_reserve(lk_bytes *bytes, size_t more)
{
    if (bytes->failed)
        return false;
    if (more <= bytes->capacity - bytes->size)
        return true;
    size_t capacity = bytes->capacity ? bytes->capacity : FIRST_CAPACITY;
    while (capacity - bytes->size < more) {
        if (capacity > SIZE_MAX / 2)
            capacity = SIZE_MAX; /* refused below */
        else
            capacity *= 2;
    }
    void *grown = lk__realloc(bytes->data, capacity, 1);
    bytes->failed = !grown;
    if (!grown)
        return false;
    bytes->data = grown;
    bytes->capacity = capacity;
    return true;
}

void lk__bytes_put(lk_bytes *bytes, const void *data, size_t size)
{
    if (size == 0 || !bytes_reserve(bytes, size))
        return;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

void lk__bytes_char(lk_bytes *bytes, char character)
{
    lk__bytes_put(bytes, &character, 1);
}

void lk__bytes_text(lk_bytes *bytes, const char *text)
{
    lk__bytes_put(bytes, text, strlen(text));
}

void lk__bytes_format(lk_bytes *bytes, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    lk__bytes_text(bytes, text);
}

void lk__bytes_fixed(lk_bytes *bytes, double value, int decimals)
{
    char text[LK__FIXED_DIGITS];
    lk__number_fixed(value, decimals, text);
    lk__bytes_text(bytes, text);
}

void lk__bytes_real(lk_bytes *bytes, double value)
{
    char text[LK_DECIMAL_SIZE];
    double size = fabs(value);
    if (size != 0 && (size < 1e-4 || size >= 1e16))
        lk__decimal_scientific(value, LK_F64, 1, -1, 2, text);
    else
        lk__decimal_positional(value, LK_F64, 1, -1, text);
    lk__bytes_text(bytes, text);
    if (text[strlen(text) - 1] == '.')
        lk__bytes_char(bytes, '0'); /* JSON requires a digit after the point */
}

void lk__bytes_utf8(lk_bytes *bytes, uint32_t c)
{
    if (c < 0x80) {
        lk__bytes_char(bytes, (char)c);
    } else if (c < 0x800) {
        lk__bytes_char(bytes, (char)(0xC0 | c >> 6));
        lk__bytes_char(bytes, (char)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        lk__bytes_char(bytes, (char)(0xE0 | c >> 12));
        lk__bytes_char(bytes, (char)(0x80 | (c >> 6 & 0x3F)));
        lk__bytes_char(bytes, (char)(0x80 | (c & 0x3F)));
    } else {
        lk__bytes_char(bytes, (char)(0xF0 | c >> 18));
        lk__bytes_char(bytes, (char)(0x80 | (c >> 12 & 0x3F)));
        lk__bytes_char(bytes, (char)(0x80 | (c >> 6 & 0x3F)));
        lk__bytes_char(bytes, (char)(0x80 | (c & 0x3F)));
    }
}

int lk__bytes_read_file(lk_bytes *bytes, const char *path, size_t most)
{
    char piece[1 << 14];
    FILE *file = fopen(path, "re");
    if (!file)
        return errno;
    for (size_t n; bytes->size <= most && !bytes->failed && (n = fread(piece, 1, sizeof piece, file)) > 0;)
        lk__bytes_put(bytes, piece, n);
    int error = ferror(file) ? errno : 0;
    fclose(file);
    return error;
}

lk_status lk__bytes_status(const lk_bytes *bytes)
{
    return bytes->failed ? LK_ERR_MEMORY : LK_OK; /* lk__realloc has set the message */
}

void lk__bytes_clear(lk_bytes *bytes)
{
    bytes->size = 0;
    bytes->failed = false;
}

void lk__bytes_free(lk_bytes *bytes)
{
    lk__free(bytes->data);
    *bytes = (lk_bytes){0};
}

/* UTF-8 excludes overlong forms, surrogates and code points beyond U+10FFFF (RFC 3629). */
static bool bytes_utf8_is_scalar(uint32_t c, int length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    return c >= least[length] && c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
}

uint32_t lk__utf8_next(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    if (*s == 0)
        return 0;
    int length = *s < 0x80 ? 1 : *s >> 5 == 0x6 ? 2 : *s >> 4 == 0xE ? 3 : *s >> 3 == 0x1E ? 4 : 0;
    uint32_t c = length == 1 ? *s : length ? *s & (0x7Fu >> length) : 0;
    int taken = 1;
    while (taken < length && s[taken] >> 6 == 2)
        c = c << 6 | (s[taken++] & 0x3F);
    if (length == 0 || taken < length || (length > 1 && !bytes_utf8_is_scalar(c, length))) {
        *text += 1;
        return REPLACEMENT;
    }
    *text += length;
    return c;
}

void lk__bytes_clean(lk_bytes *bytes, const char *text)
{
    for (uint32_t c; (c = lk__utf8_next(&text));)
        lk__bytes_utf8(bytes, c);
}

int lk__utf8_length(const char *text)
{
    int length = 0;
    while (lk__utf8_next(&text))
        length++;
    return length;
}
