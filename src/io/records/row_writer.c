#include "io/records/row_writer.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/bytes.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

struct lk_row_writer {
    lk_append_file file;
    lk_row_format format;
    bool checked;   /* the file's earlier contents have been checked */
    lk_bytes names; /* CSV: the header line */
    lk_bytes line;
};

lk_row_writer *lk_row_writer_new(const char *path, lk_row_format format, bool append)
{
    lk_row_writer *writer = lk__calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->format = format;
    if (lk__append_open(&writer->file, path, append ? 0 : O_TRUNC) != LK_OK) {
        lk__free(writer);
        return NULL;
    }
    return writer;
}

lk_row_writer *lk__row_writer_reopen(const char *path, lk_row_format format, int64_t bytes)
{
    lk_row_writer *writer = lk_row_writer_new(path, format, true);
    if (!writer || lk__append_cut(&writer->file, bytes) == LK_OK)
        return writer;
    lk_row_writer_release(writer);
    return NULL;
}

const char *lk__row_writer_path(const lk_row_writer *writer)
{
    return writer->file.path;
}

lk_file_mark lk__row_writer_mark(lk_row_writer *writer)
{
    return lk__append_mark(&writer->file);
}

void lk_row_writer_release(lk_row_writer *writer)
{
    if (!writer)
        return;
    lk__append_close(&writer->file);
    lk__bytes_free(&writer->names);
    lk__bytes_free(&writer->line);
    lk__free(writer);
}

/* --- values ------------------------------------------------------------------------------------------------------ */

static void row_writer_put_csv_text(lk_bytes *line, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        lk__bytes_text(line, text);
        return;
    }
    lk__bytes_char(line, '"');
    for (; *text; text++) {
        if (*text == '"')
            lk__bytes_char(line, '"');
        lk__bytes_char(line, *text);
    }
    lk__bytes_char(line, '"');
}

static void row_writer_put_csv_value(lk_bytes *line, const lk_field *field)
{
    if (field->kind == LK_FIELD_INT)
        lk__bytes_format(line, "%" PRId64, field->integer);
    else if (field->kind == LK_FIELD_BOOL)
        lk__bytes_text(line, field->integer ? "true" : "false");
    else if (field->kind == LK_FIELD_TEXT && field->text)
        row_writer_put_csv_text(line, field->text);
    else if (field->kind == LK_FIELD_REAL && isfinite(field->real))
        lk__bytes_real(line, field->real);
    else if (field->kind == LK_FIELD_REAL)
        lk__bytes_text(line, isnan(field->real) ? "nan" : field->real > 0 ? "inf" : "-inf");
}

/* --- lines ------------------------------------------------------------------------------------------------------- */

/* Makes the header line if `names` is set, otherwise a row. */
static void row_writer_make_csv_line(lk_bytes *line, const lk_field *fields, int count, bool names)
{
    for (int i = 0; i < count; i++) {
        if (i > 0)
            lk__bytes_char(line, ',');
        if (names)
            row_writer_put_csv_text(line, fields[i].name);
        else
            row_writer_put_csv_value(line, &fields[i]);
    }
    lk__bytes_char(line, '\n');
}

static void row_writer_make_json_line(lk_bytes *line, const lk_field *fields, int count)
{
    lk__json_open(line, NULL, '{');
    for (int i = 0; i < count; i++)
        lk__json_field(line, fields[i]);
    lk__json_close(line, '}');
    lk__bytes_char(line, '\n');
}

/* --- existing contents ------------------------------------------------------------------------------------------- */

/* Copies the file's first bytes, at most `size`, to `start` and finds the end of its last whole line, *whole. In CSV a
 * line break between quotes belongs to a field; JSON lines contain none. */
static lk_status row_writer_scan_lines(lk_row_writer *writer, unsigned char *start, size_t size, size_t *start_size,
                                       int64_t *whole)
{
    unsigned char chunk[4096];
    bool quoted = false;
    *start_size = 0;
    *whole = 0;
    for (int64_t at = 0;;) {
        ssize_t got = pread(writer->file.fd, chunk, sizeof chunk, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            LK_FAIL(LK_ERR_IO, "%s cannot be read: %s", writer->file.path, strerror(errno));
        if (got == 0)
            return LK_OK;
        for (ssize_t i = 0; i < got; i++, at++) {
            if (*start_size < size)
                start[(*start_size)++] = chunk[i];
            quoted ^= writer->format == LK_ROWS_CSV && chunk[i] == '"';
            if (chunk[i] == '\n' && !quoted)
                *whole = at + 1;
        }
    }
}

/* A file that is appended to must begin as this writer would begin it. An incomplete last line is removed. */
static lk_status row_writer_check_existing(lk_row_writer *writer)
{
    const char *own = writer->format == LK_ROWS_CSV ? (const char *)writer->names.data : "{";
    size_t own_size = writer->format == LK_ROWS_CSV ? writer->names.size : 1, found_size;
    lk_bytes found = {0};
    lk__bytes_put(&found, own, own_size); /* only to allocate as many bytes */
    LK_TRY(lk__bytes_status(&found));
    int64_t whole;
    lk_status status;
    LK_TRY_GOTO(row_writer_scan_lines(writer, found.data, own_size, &found_size, &whole));
    bool complete = found_size == own_size || whole == 0;
    if (!complete || memcmp(found.data, own, found_size) != 0) {
        status = LK_ERR_FORMAT;
        if (writer->format == LK_ROWS_CSV)
            lk__fail(status, "%s has other columns than %.*s", writer->file.path, (int)own_size - 1, own);
        else
            lk__fail(status, "%s holds no JSON lines: it does not begin with {", writer->file.path);
        goto fail;
    }
    status = whole < writer->file.whole ? lk__append_cut(&writer->file, whole) : LK_OK;
fail:
    lk__bytes_free(&found);
    return status;
}

static lk_status row_writer_check_names(lk_row_writer *writer, const lk_field *fields, int count)
{
    if (count < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: a row needs a field", writer->file.path);
    for (int i = 0; i < count; i++)
        if (!fields[i].name || !*fields[i].name)
            LK_FAIL(LK_ERR_ARGUMENT, "%s: field %d of the row has no name", writer->file.path, i + 1);
    if (writer->format == LK_ROWS_JSON)
        return LK_OK;
    lk_bytes *header = writer->checked ? &writer->line : &writer->names;
    lk__bytes_clear(header);
    row_writer_make_csv_line(header, fields, count, true);
    LK_TRY(lk__bytes_status(header));
    if (header->size != writer->names.size || memcmp(header->data, writer->names.data, header->size) != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: the row's columns are %.*s and those of the first row %.*s", writer->file.path,
                (int)header->size - 1, (const char *)header->data, (int)writer->names.size - 1,
                (const char *)writer->names.data);
    return LK_OK;
}

/* Checks the names, and before the first row the file; begins `line`, with the header where the file is empty. */
static lk_status row_writer_begin_row(lk_row_writer *writer, const lk_field *fields, int count)
{
    LK_TRY(row_writer_check_names(writer, fields, count));
    if (!writer->checked && writer->file.whole > 0)
        LK_TRY(row_writer_check_existing(writer));
    writer->checked = true;
    lk__bytes_clear(&writer->line);
    if (writer->format == LK_ROWS_CSV && writer->file.whole == 0)
        lk__bytes_put(&writer->line, writer->names.data, writer->names.size);
    return LK_OK;
}

static lk_status row_writer_append_row(lk_row_writer *writer)
{
    LK_TRY(lk__bytes_status(&writer->line));
    return lk__append(&writer->file, writer->line.data, writer->line.size);
}

lk_status lk_row_names(lk_row_writer *writer, const lk_field *fields, int count)
{
    LK_TRY(row_writer_begin_row(writer, fields, count));
    return row_writer_append_row(writer);
}

lk_status lk_row_write(lk_row_writer *writer, const lk_field *fields, int count)
{
    LK_TRY(row_writer_begin_row(writer, fields, count));
    if (writer->format == LK_ROWS_JSON)
        row_writer_make_json_line(&writer->line, fields, count);
    else
        row_writer_make_csv_line(&writer->line, fields, count, false);
    return row_writer_append_row(writer);
}
