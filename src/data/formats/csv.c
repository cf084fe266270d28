/* Each row of the file is a label and the pixels, 0 to 255, channel by channel and row by row. */
#include "data/formats/csv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/convert.h"
#include "data/formats/byte_source.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 64 * 1024, MAX_LINE = 64 << 20, LOGGED = 20, MIN_NUMBERED_COLUMNS = 16 };

typedef struct csv {
    const char *path;
    const lk_dataset_opts *opts;
    lk_samples *samples;
    int64_t samples_capacity;
    lk_byte_source source;
    uint8_t *chunk; /* [CHUNK] */
    size_t chunk_size, chunk_position;
    char *line; /* [length + 1], without the newline */
    size_t length;
    int64_t line_capacity;
    int64_t number;             /* of the line, from 1 */
    int64_t columns;            /* of each row */
    int64_t label;              /* the column with the label */
    int64_t bad;                /* rows left out */
    bool has_header;            /* the first line names the columns */
    bool is_counted;            /* only the classes are wanted: whoever reads the rows hears of the bad ones */
    char problem[192];          /* of the last bad row */
    const struct csv *training; /* the training set's file, already read; NULL: this is it */
} csv;

/* --- lines -------------------------------------------------------------------------------------------------------- */

static lk_status csv_append_to_line(csv *c, const uint8_t *bytes, size_t count)
{
    if (c->length + count > MAX_LINE)
        LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": a line of more than %d bytes", c->path, c->number, MAX_LINE);
    LK_TRY(LK_GROW(c->line, &c->line_capacity, (int64_t)(c->length + count + 1)));
    memcpy(c->line + c->length, bytes, count);
    c->length += count;
    c->line[c->length] = '\0';
    return LK_OK;
}

static lk_status csv_refill_chunk(csv *c)
{
    lk_status status = lk__byte_source_read(&c->source, c->chunk, CHUNK, &c->chunk_size);
    c->chunk_position = 0;
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", c->path, c->source.problem);
    return LK_OK;
}

/* Removes the byte order mark that spreadsheets write before UTF-8. */
static void csv_remove_mark(csv *c)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (strncmp(c->line, mark, sizeof mark - 1) != 0)
        return;
    c->length -= sizeof mark - 1;
    memmove(c->line, c->line + sizeof mark - 1, c->length + 1);
}

/* Reads the next line. *ended: the file has no more lines. The last line need not end in a newline. */
static lk_status csv_read_line(csv *c, bool *ended)
{
    bool any = false;
    c->length = 0;
    c->number++;
    LK_TRY(csv_append_to_line(c, (const uint8_t *)"", 0));
    for (;;) {
        if (c->chunk_position == c->chunk_size)
            LK_TRY(csv_refill_chunk(c));
        size_t left = c->chunk_size - c->chunk_position;
        if (left == 0)
            break;
        any = true;
        const uint8_t *begin = c->chunk + c->chunk_position, *end = memchr(begin, '\n', left);
        size_t count = end ? (size_t)(end - begin) : left;
        c->chunk_position += end ? count + 1 : count;
        LK_TRY(csv_append_to_line(c, begin, count));
        if (end)
            break;
    }
    if (c->length && c->line[c->length - 1] == '\r')
        c->line[--c->length] = '\0';
    if (c->number == 1)
        csv_remove_mark(c);
    *ended = !any;
    return LK_OK;
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

static const char *csv_skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* Reads a number from 0 to `largest`, quoted or not, up to the comma or the end of the line, and returns where it
 * stops. NULL: there is no such number. */
static const char *csv_parse_value(const char *p, int32_t largest, int32_t *value)
{
    int32_t number = 0;
    p = csv_skip_blanks(p);
    bool quoted = *p == '"';
    p += quoted;
    if (*p < '0' || *p > '9')
        return NULL;
    for (; *p >= '0' && *p <= '9'; p++)
        if ((number = 10 * number + (*p - '0')) > largest)
            return NULL;
    if (quoted && *p++ != '"')
        return NULL;
    p = csv_skip_blanks(p);
    *value = number;
    return *p == ',' || *p == '\0' ? p : NULL;
}

static bool csv_is_blank(const csv *c)
{
    return csv_skip_blanks(c->line) == c->line + c->length;
}

/* Returns the comma or the end of the line behind a field. A quoted field may contain commas, and doubled quotes. */
static const char *csv_field_end(const char *field)
{
    field = csv_skip_blanks(field);
    const char *quote = *field == '"' ? strchr(field + 1, '"') : NULL;
    while (quote && quote[1] == '"')
        quote = strchr(quote + 2, '"');
    if (quote)
        field = quote;
    return field + strcspn(field, ",");
}

static int64_t csv_count_columns(const char *line)
{
    int64_t columns = 1;
    for (const char *end = csv_field_end(line); *end; end = csv_field_end(end + 1))
        columns++;
    return columns;
}

/* Returns the end of a field without the blanks and quotes around it, and moves *field to its beginning. */
static const char *csv_trim_field(const char **field, bool *quoted)
{
    const char *end = csv_field_end(*field);
    *field = csv_skip_blanks(*field);
    while (end > *field && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *quoted = end - *field >= 2 && **field == '"' && end[-1] == '"';
    *field += *quoted;
    return end - *quoted;
}

/* Copies a field; cuts it to `size`. */
static void csv_copy_field(const char *field, char *text, size_t size)
{
    bool quoted;
    size_t length = (size_t)(csv_trim_field(&field, &quoted) - field);
    snprintf(text, size, "%.*s", (int)(length < size ? length : size - 1), field);
}

static bool csv_field_is(const char *field, const char *name, bool any_case)
{
    bool quoted;
    const char *end = csv_trim_field(&field, &quoted);
    for (; field < end; field++, name++) {
        field += quoted && *field == '"'; /* it is doubled */
        if (any_case ? tolower((unsigned char)*field) != *name : *field != *name)
            return false;
    }
    return *name == '\0';
}

/* Lines are handled as strings, so a byte of 0 would hide the rest of a line. */
static const char zero_byte_problem[] = "a byte of 0, expected text in UTF-8";

/* --- the header --------------------------------------------------------------------------------------------------- */

/* Returns the name that the option gives; NULL: none. */
static const char *csv_wanted_label(const csv *c)
{
    return c->opts->label_column && *c->opts->label_column ? c->opts->label_column : NULL;
}

/* Sets c->label if the first line names the column. */
static bool csv_find_label(csv *c)
{
    const char *wanted = csv_wanted_label(c), *field = c->line;
    for (int64_t i = 0; i < c->columns; i++, field = csv_field_end(field) + 1)
        if (wanted ? csv_field_is(field, wanted, false)
                   : csv_field_is(field, "label", true) || csv_field_is(field, "class", true)) {
            c->label = i;
            return true;
        }
    return false;
}

static lk_status csv_take_first_for_label(const csv *c)
{
    char name[64];
    if (csv_wanted_label(c))
        LK_FAIL(LK_ERR_ARGUMENT, "--label-column %s: no column of that name in %s", csv_wanted_label(c), c->path);
    csv_copy_field(c->line, name, sizeof name);
    if (!c->is_counted)
        lk__log(LK_LOG_WARNING,
                "%s: no column is called label or class: the first, '%s', is taken for it; --label-column NAME says "
                "which",
                c->path, name);
    return LK_OK;
}

/* Takes the shape from the name of the last pixel's column, "28x28" or "3x32x32", if columns are named by the position
 * of their pixel. */
static void csv_find_shape(csv *c)
{
    char name[64];
    int64_t size[3];
    const char *field = c->line;
    for (int64_t left = c->columns - (c->label == c->columns - 1 ? 2 : 1); left > 0; left--)
        field = csv_field_end(field) + 1;
    csv_copy_field(field, name, sizeof name);
    int n = lk__read_sizes(name, size);
    int64_t channels = n == 3 ? size[0] : 1;
    if (n < 2 || channels * size[n - 2] * size[n - 1] != c->columns - 1)
        return;
    c->samples->channels = channels;
    c->samples->height = size[n - 2];
    c->samples->width = size[n - 1];
}

static lk_status csv_check_shape(const csv *c)
{
    const lk_samples *s = c->samples;
    int64_t pixels = c->columns - 1, side = 1, given = s->channels * s->height * s->width;
    if (pixels < 1)
        LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": one column, expected a label and pixels, with commas between them",
                c->path, c->number);
    if (given == pixels)
        return LK_OK;
    if (given)
        LK_FAIL(LK_ERR_FORMAT,
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

/* Returns whether the line is 0, 1, 2 …, the header of a table whose columns have no names. A shorter line than
 * MIN_NUMBERED_COLUMNS may be a row of data by chance, and counts as one. */
static bool csv_is_numbered_header(const csv *c)
{
    const char *p = c->line;
    for (int64_t i = 0; i < c->columns; i++) {
        int32_t value;
        p = csv_parse_value(p, MAX_LINE, &value);
        if (!p || value != i)
            return false;
        p += *p == ',';
    }
    return c->columns >= MIN_NUMBERED_COLUMNS;
}

/* Without a header nothing says where the label is: the first column is taken for it. That is wrong if the header of
 * the other file names another column. */
static lk_status csv_check_label(const csv *c)
{
    const csv *t = c->training;
    if (!t || c->label == t->label || (c->has_header && t->has_header))
        return LK_OK;
    const csv *with = c->has_header ? c : t, *without = c->has_header ? t : c;
    LK_FAIL(LK_ERR_FORMAT,
            "%s: has no header, but that of %s says that column %" PRId64 " is the label: write that header into both",
            without->path, with->path, with->label + 1);
}

/* The first line that is not blank is a header if its first field is not a number, if a field is the label's name, or
 * if it numbers the columns. */
static lk_status csv_read_first_line(csv *c)
{
    lk_samples *s = c->samples;
    char first[64];
    if (strlen(c->line) != c->length)
        LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": %s", c->path, c->number, zero_byte_problem);
    c->columns = csv_count_columns(c->line);
    csv_copy_field(c->line, first, sizeof first);
    bool is_number = strpbrk(first, "0123456789") && first[strspn(first, "+-.0123456789eE")] == '\0';
    bool is_named = csv_find_label(c);
    c->has_header = !is_number || is_named || csv_is_numbered_header(c);
    if (c->has_header && c->columns > 1) {
        if (!is_named)
            LK_TRY(csv_take_first_for_label(c));
        csv_find_shape(c);
    } else if (csv_wanted_label(c)) {
        LK_FAIL(LK_ERR_ARGUMENT, "--label-column %s: %s has no header, or none with that name", csv_wanted_label(c),
                c->path);
    }
    if (c->opts->shape && *c->opts->shape)
        LK_TRY(lk__parse_shape(c->opts->shape, &s->channels, &s->height, &s->width));
    LK_TRY(csv_check_label(c));
    return csv_check_shape(c);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Writes c->problem. Returns false, so that csv_parse_row can return the call. */
static bool LK_PRINTF(2, 3) csv_bad_row(csv *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->problem, sizeof c->problem, format, arguments);
    va_end(arguments);
    return false;
}

static bool csv_parse_row(csv *c, uint8_t *pixels, int32_t *label)
{
    const char *p = c->line;
    if (strlen(c->line) != c->length)
        return csv_bad_row(c, "%s", zero_byte_problem);
    for (int64_t i = 0; i < c->columns; i++) {
        int32_t value, largest = i == c->label ? LK_MAX_CLASSES - 1 : UINT8_MAX;
        const char *end = csv_parse_value(p, largest, &value);
        if (!end)
            return csv_bad_row(c, "column %" PRId64 " is '%.*s', expected %san integer from 0 to %d", i + 1,
                               (int)(strcspn(p, ",") < 24 ? strcspn(p, ",") : 24), p, i == c->label ? "a label, " : "",
                               largest);
        if (i == c->label)
            *label = value;
        else
            *pixels++ = (uint8_t)value;
        bool last = i == c->columns - 1;
        if (last != (*end == '\0'))
            return csv_bad_row(c, "%" PRId64 " columns, expected %" PRId64, csv_count_columns(c->line), c->columns);
        p = end + 1;
    }
    return true;
}

static lk_status csv_add_row(csv *c)
{
    lk_samples *s = c->samples;
    if (csv_is_blank(c))
        return LK_OK;
    LK_TRY(lk__samples_reserve(s, &c->samples_capacity));
    if (csv_parse_row(c, s->memory + s->count * (c->columns - 1), &s->labels[s->count])) {
        if (s->labels[s->count] >= s->classes)
            s->classes = s->labels[s->count] + 1;
        s->count++;
        return LK_OK;
    }
    if (!c->opts->skip_bad)
        LK_FAIL(LK_ERR_FORMAT, "%s:%" PRId64 ": %s; --skip-bad leaves such rows out", c->path, c->number, c->problem);
    if (c->bad++ < LOGGED && !c->is_counted)
        lk__log(LK_LOG_WARNING, "left out: %s:%" PRId64 ": %s", c->path, c->number, c->problem);
    return LK_OK;
}

static lk_status csv_read_rows(csv *c)
{
    bool ended;
    do
        LK_TRY(csv_read_line(c, &ended));
    while (!ended && csv_is_blank(c));
    if (ended)
        LK_FAIL(LK_ERR_FORMAT, "%s: is empty, expected rows of a label and pixels", c->path);
    LK_TRY(csv_read_first_line(c));
    if (!c->has_header)
        LK_TRY(csv_add_row(c));
    for (;;) {
        LK_TRY(csv_read_line(c, &ended));
        if (ended)
            break;
        LK_TRY(csv_add_row(c));
    }
    if (c->bad && !c->is_counted)
        lk__log(LK_LOG_WARNING, "%" PRId64 " rows of %s cannot be used and are left out", c->bad, c->path);
    if (c->samples->count == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: has no row that can be used", c->path);
    return LK_OK;
}

static lk_status csv_read_file(csv *c)
{
    lk_status status = lk__byte_source_open(c->path, &c->source);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", c->path, c->source.problem);
    c->chunk = lk__calloc(CHUNK, 1);
    status = c->chunk ? csv_read_rows(c) : LK_ERR_MEMORY;
    lk__byte_source_close(&c->source);
    lk__free(c->chunk);
    lk__free(c->line);
    return status;
}

lk_status lk__csv_read(const char *path, const char *training, const lk_dataset_opts *opts, lk_samples *samples)
{
    lk_samples counted = {0};
    csv train = {.path = training, .opts = opts, .samples = &counted, .is_counted = true};
    csv own = {.path = path, .opts = opts, .samples = samples, .training = training ? &train : NULL};
    *samples = (lk_samples){0};
    lk_status status = training ? csv_read_file(&train) : LK_OK;
    const int64_t classes = counted.classes;
    lk__samples_free(&counted);
    if (status == LK_OK)
        status = csv_read_file(&own);
    if (status == LK_OK && training) {
        samples->classes = classes;
        status = lk__samples_check_labels(samples, path);
    }
    if (status != LK_OK)
        lk__samples_free(samples);
    return status;
}
