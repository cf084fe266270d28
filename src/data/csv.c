/* Samples as rows of CSV: a label and the pixels, 0 to 255, channel by channel and row by row. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/byte_source.h"
#include "data/own_data.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { CHUNK = 64 * 1024, MAX_LINE = 64 << 20, LOGGED = 20, NO_ROW = 16 };

typedef struct csv {
    const char *path;
    const lk_dataset_opts *opts;
    lk__samples *samples;
    int64_t room; /* for samples */
    lk__byte_source source;
    uint8_t *chunk; /* [CHUNK] */
    size_t chunk_size, chunk_position;
    char *line; /* without its end */
    size_t length, capacity;
    int64_t number;         /* of the line, from 1 */
    int64_t columns, label; /* of each row; which one is the label */
    int64_t bad;
    char problem[192]; /* of a row */
} csv;

/* --- lines -------------------------------------------------------------------------------------------------------- */

static lk_status append(csv *c, const uint8_t *bytes, size_t count)
{
    if (c->length + count + 1 > c->capacity) {
        size_t capacity = 2 * (c->length + count + 1);
        if (c->length + count > MAX_LINE)
            LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": a line of more than %d bytes", c->path, c->number, MAX_LINE);
        char *grown = lk__realloc(c->line, capacity, 1);
        if (!grown)
            return LK_ERR_MEMORY;
        c->line = grown;
        c->capacity = capacity;
    }
    memcpy(c->line + c->length, bytes, count);
    c->length += count;
    c->line[c->length] = '\0';
    return LK_OK;
}

static lk_status refill(csv *c)
{
    lk_status status = lk__byte_source_read(&c->source, c->chunk, CHUNK, &c->chunk_size);
    c->chunk_position = 0;
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", c->path, c->source.problem);
    return LK_OK;
}

/* *ended: there is none any more. The last one need not end in a newline. */
static lk_status next_line(csv *c, bool *ended)
{
    bool any = false;
    c->length = 0;
    c->number++;
    LK_TRY(append(c, (const uint8_t *)"", 0));
    for (;;) {
        if (c->chunk_position == c->chunk_size)
            LK_TRY(refill(c));
        size_t left = c->chunk_size - c->chunk_position;
        if (left == 0)
            break;
        any = true;
        const uint8_t *begin = c->chunk + c->chunk_position, *end = memchr(begin, '\n', left);
        size_t count = end ? (size_t)(end - begin) : left;
        c->chunk_position += end ? count + 1 : count;
        LK_TRY(append(c, begin, count));
        if (end)
            break;
    }
    if (c->length && c->line[c->length - 1] == '\r')
        c->line[--c->length] = '\0';
    *ended = !any;
    return LK_OK;
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* A number from 0 to `largest`, in quotes or not, up to the comma or the end; NULL where there is none. */
static const char *read_value(const char *p, int32_t largest, int32_t *value)
{
    int32_t number = 0;
    p = skip_blanks(p);
    bool quoted = *p == '"';
    p += quoted;
    if (*p < '0' || *p > '9')
        return NULL;
    for (; *p >= '0' && *p <= '9'; p++)
        if ((number = 10 * number + (*p - '0')) > largest)
            return NULL;
    if (quoted && *p++ != '"')
        return NULL;
    p = skip_blanks(p);
    *value = number;
    return *p == ',' || *p == '\0' ? p : NULL;
}

static int64_t count_columns(const char *line)
{
    int64_t columns = 1;
    for (; (line = strchr(line, ',')); line++)
        columns++;
    return columns;
}

/* Field `wanted` of a line, without blanks and quotes around it. */
static void copy_field(const char *line, int64_t wanted, char *text, size_t size)
{
    for (int64_t i = 0; i < wanted; i++)
        line = strchr(line, ',') + 1;
    line = skip_blanks(line);
    size_t length = strcspn(line, ",");
    while (length && (line[length - 1] == ' ' || line[length - 1] == '\t'))
        length--;
    if (length >= 2 && line[0] == '"' && line[length - 1] == '"') {
        line++;
        length -= 2;
    }
    snprintf(text, size, "%.*s", (int)(length < size ? length : size - 1), line);
}

/* Would end the line before its end. */
static const char byte_of_zero[] = "a byte of 0, expected text in UTF-8";

/* --- the header --------------------------------------------------------------------------------------------------- */

static lk_status find_label(csv *c)
{
    const char *wanted = c->opts->label_column;
    char name[64];
    for (int64_t i = 0; i < c->columns; i++) {
        copy_field(c->line, i, name, sizeof name);
        if (wanted ? strcmp(name, wanted) == 0 : strcasecmp(name, "label") == 0 || strcasecmp(name, "class") == 0) {
            c->label = i;
            return LK_OK;
        }
    }
    if (wanted)
        LK_FAIL(LK_ERR_ARGUMENT, "--label-column %s: no column of that name in %s", wanted, c->path);
    copy_field(c->line, 0, name, sizeof name);
    lk__log(LK_LOG_WARNING,
            "%s: no column is called label or class: the first, '%s', is taken for it; --label-column NAME says which",
            c->path, name);
    return LK_OK;
}

/* The last pixel's column is called "28x28", or "3x32x32", where columns are called by where their pixels are. */
static void find_shape(csv *c)
{
    char name[64];
    int64_t size[3];
    copy_field(c->line, c->label == c->columns - 1 ? c->columns - 2 : c->columns - 1, name, sizeof name);
    int n = lk__read_sizes(name, size);
    lk__samples shape = {
        .channels = n == 3 ? size[0] : 1, .height = n > 1 ? size[n - 2] : 0, .width = n > 1 ? size[n - 1] : 0};
    if (n < 2 || shape.channels * shape.height * shape.width != c->columns - 1)
        return;
    c->samples->channels = shape.channels;
    c->samples->height = shape.height;
    c->samples->width = shape.width;
}

static lk_status check_shape(const csv *c)
{
    const lk__samples *s = c->samples;
    int64_t pixels = c->columns - 1, side = 1, given = s->channels * s->height * s->width;
    if (pixels < 1)
        LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": one column, expected a label and pixels, with commas between them",
                c->path, c->number);
    if (given == pixels)
        return LK_OK;
    if (given)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--image-shape %s: is %" PRId64 " pixels, but the rows of %s have %" PRId64 " beside the label",
                c->opts->shape, given, c->path, pixels);
    while (side * side < pixels)
        side++;
    char fits[64] = "";
    if (side * side == pixels)
        snprintf(fits, sizeof fits, " (1x%" PRId64 "x%" PRId64 " would fit)", side, side);
    LK_FAIL(LK_ERR_ARGUMENT,
            "%s: %" PRId64 " pixels a row, and no header that says in which shape: "
            "--image-shape CHANNELSxHEIGHTxWIDTH does%s",
            c->path, pixels, fits);
}

/* 0, 1, 2 …: the header of a table whose columns have no names. With few columns it may be a row. */
static bool numbers_columns(const csv *c)
{
    const char *p = c->line;
    for (int64_t i = 0; i < c->columns; i++) {
        int32_t value;
        p = read_value(p, MAX_LINE, &value);
        if (!p || value != i)
            return false;
        p += *p == ',';
    }
    return c->columns >= NO_ROW;
}

/* The first line is one where its first field is no number, or it numbers the columns. */
static lk_status read_header(csv *c, bool *is_row)
{
    lk__samples *s = c->samples;
    char first[64];
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, as spreadsheets write it */
    if (strlen(c->line) != c->length)
        LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": %s", c->path, c->number, byte_of_zero);
    if (strncmp(c->line, mark, sizeof mark - 1) == 0) {
        c->length -= sizeof mark - 1;
        memmove(c->line, c->line + sizeof mark - 1, c->length + 1);
    }
    c->columns = count_columns(c->line);
    copy_field(c->line, 0, first, sizeof first);
    *is_row = (first[0] == '\0' || first[strspn(first, "+-.0123456789eE")] == '\0') && !numbers_columns(c);
    if (!*is_row && c->columns > 1) {
        LK_TRY(find_label(c));
        find_shape(c);
    } else if (c->opts->label_column) {
        LK_FAIL(LK_ERR_ARGUMENT, "--label-column %s: %s has no header", c->opts->label_column, c->path);
    }
    if (c->opts->shape)
        LK_TRY(lk__parse_shape(c->opts->shape, &s->channels, &s->height, &s->width));
    return check_shape(c);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static bool LK_PRINTF(2, 3) is_bad(csv *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->problem, sizeof c->problem, format, arguments);
    va_end(arguments);
    return false;
}

static bool parse_row(csv *c, uint8_t *pixels, int32_t *label)
{
    const char *p = c->line;
    if (strlen(c->line) != c->length)
        return is_bad(c, "%s", byte_of_zero);
    for (int64_t i = 0; i < c->columns; i++) {
        int32_t value, largest = i == c->label ? LK_MAX_CLASSES - 1 : UINT8_MAX;
        const char *end = read_value(p, largest, &value);
        if (!end)
            return is_bad(c, "column %" PRId64 " is '%.*s', expected %san integer from 0 to %d", i + 1,
                          (int)(strcspn(p, ",") < 24 ? strcspn(p, ",") : 24), p, i == c->label ? "a label, " : "",
                          largest);
        if (i == c->label)
            *label = value;
        else
            *pixels++ = (uint8_t)value;
        bool last = i == c->columns - 1;
        if (last != (*end == '\0'))
            return is_bad(c, "%" PRId64 " columns, expected %" PRId64, count_columns(c->line), c->columns);
        p = end + 1;
    }
    return true;
}

static lk_status add_row(csv *c)
{
    lk__samples *s = c->samples;
    if (c->length == 0)
        return LK_OK; /* an empty line at the end, or in between */
    LK_TRY(lk__samples_make_room(s, &c->room));
    if (parse_row(c, s->memory + s->count * (c->columns - 1), &s->labels[s->count])) {
        if (s->labels[s->count] >= s->classes)
            s->classes = s->labels[s->count] + 1;
        s->count++;
        return LK_OK;
    }
    if (!c->opts->skip_bad)
        LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": %s; --skip-bad leaves such rows out", c->path, c->number, c->problem);
    if (c->bad++ < LOGGED)
        lk__log(LK_LOG_WARNING, "left out: %s:%" PRId64 ": %s", c->path, c->number, c->problem);
    return LK_OK;
}

static lk_status read_rows(csv *c)
{
    bool ended, is_row;
    LK_TRY(next_line(c, &ended));
    if (ended)
        LK_FAIL(LK_ERR_FORMAT, "%s: is empty, expected rows of a label and pixels", c->path);
    LK_TRY(read_header(c, &is_row));
    if (is_row)
        LK_TRY(add_row(c));
    for (;;) {
        LK_TRY(next_line(c, &ended));
        if (ended)
            break;
        LK_TRY(add_row(c));
    }
    if (c->bad)
        lk__log(LK_LOG_WARNING, "%" PRId64 " rows of %s cannot be used and are left out", c->bad, c->path);
    if (c->samples->count == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: has no row that can be used", c->path);
    return LK_OK;
}

static lk_status read_file(const char *path, const lk_dataset_opts *opts, lk__samples *samples)
{
    csv c = {.path = path, .opts = opts, .samples = samples};
    lk_status status = lk__byte_source_open(path, &c.source);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", path, c.source.problem);
    c.chunk = lk__calloc(CHUNK, 1);
    status = c.chunk ? read_rows(&c) : LK_ERR_MEMORY;
    lk__byte_source_close(&c.source);
    lk__free(c.chunk);
    lk__free(c.line);
    return status;
}

/* --- the split ---------------------------------------------------------------------------------------------------- */

static lk_status count_classes(const char *training, const lk_dataset_opts *opts, int64_t *classes)
{
    lk__samples samples = {0};
    lk_status status = read_file(training, opts, &samples);
    *classes = samples.classes;
    lk__samples_free(&samples);
    return status;
}

lk_status lk__csv_read(const char *path, const char *training, const lk_dataset_opts *opts, lk__samples *samples)
{
    int64_t classes = 0;
    *samples = (lk__samples){0};
    lk_status status = training ? count_classes(training, opts, &classes) : LK_OK;
    if (status == LK_OK)
        status = read_file(path, opts, samples);
    if (status == LK_OK && training) {
        samples->classes = classes;
        status = lk__samples_check_labels(samples, path);
    }
    if (status != LK_OK)
        lk__samples_free(samples);
    return status;
}
