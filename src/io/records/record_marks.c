/* Marks in record files, for callers that do not use lk_trainer_fit: a checkpoint stores the mark as text, and a run
 * that resumes cuts its records back to it. */
#include "base/status.h"
#include "io/records/events.h"
#include "io/records/row_writer.h"
#include "lockstep/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static lk_status put_mark(const char *path, lk_file_mark mark, char text[LK_RECORD_MARK])
{
    if (mark.bytes < 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read, and so not be gone on with later", path);
    snprintf(text, LK_RECORD_MARK, "%" PRId64 " %016" PRIx64, mark.bytes, mark.hash);
    return LK_OK;
}

static bool read_mark(const char *text, lk_file_mark *mark)
{
    char *end, *hash;
    mark->bytes = strtoll(text, &end, 10);
    hash = end + (*end == ' ');
    mark->hash = strtoull(hash, &end, 16);
    return mark->bytes >= 0 && hash > text && end - hash == 16 && *end == '\0';
}

/* *bytes: the size to which the file is to be cut. */
static lk_status check_mark(const char *path, const char *text, int64_t *bytes)
{
    lk_file_mark mark;
    if (!text || !read_mark(text, &mark))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: '%.40s' is no mark of records", path, text ? text : "");
    if (!lk__file_has_mark(path, mark))
        LK_FAIL(LK_ERR_STATE, "%s: is gone, or not the file that was there when the mark was made", path);
    *bytes = mark.bytes;
    return LK_OK;
}

lk_status lk_row_writer_mark(lk_row_writer *writer, char mark[LK_RECORD_MARK])
{
    return put_mark(lk__row_writer_path(writer), lk__row_writer_mark(writer), mark);
}

lk_row_writer *lk_row_writer_reopen(const char *path, lk_row_format format, const char *mark)
{
    int64_t bytes;
    return check_mark(path, mark, &bytes) == LK_OK ? lk__row_writer_reopen(path, format, bytes) : NULL;
}

lk_status lk_event_writer_mark(lk_event_writer *writer, char mark[LK_RECORD_MARK])
{
    return put_mark(lk_event_writer_path(writer), lk__event_writer_mark(writer), mark);
}

lk_event_writer *lk_event_writer_reopen(const char *path, const char *mark)
{
    int64_t bytes;
    return check_mark(path, mark, &bytes) == LK_OK ? lk__event_writer_reopen(path, bytes) : NULL;
}
