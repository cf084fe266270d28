/* Marks in record files, for callers that do not use lk_trainer_fit: a checkpoint stores the mark as text, and a run
 * that resumes cuts its records back to it. */
#include "base/status.h"
#include "io/records/events.h"
#include "io/records/row_writer.h"
#include "lockstep/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static lk_status record_mark_to_text(const char *path, lk_file_mark mark, char text[LK_RECORD_MARK])
{
    if (mark.bytes < 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read, and so not be gone on with later", path);
    snprintf(text, LK_RECORD_MARK, "%" PRId64 " %016" PRIx64, mark.bytes, mark.hash);
    return LK_OK;
}

static bool record_mark_parse(const char *text, lk_file_mark *mark)
{
    char *end, *hash;
    mark->bytes = strtoll(text, &end, 10);
    hash = end + (*end == ' ');
    mark->hash = strtoull(hash, &end, 16);
    return mark->bytes >= 0 && hash > text && end - hash == 16 && *end == '\0';
}

/* Sets *bytes to the size to cut the file to. */
static lk_status record_mark_check(const char *path, const char *text, int64_t *bytes)
{
    lk_file_mark mark;
    if (!text || !record_mark_parse(text, &mark))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: '%.40s' is no mark of records", path, text ? text : "");
    if (!lk__file_has_mark(path, mark))
        LK_FAIL(LK_ERR_STATE, "%s: is gone, or not the file that was there when the mark was made", path);
    *bytes = mark.bytes;
    return LK_OK;
}

lk_status lk_row_writer_mark(lk_row_writer *writer, char mark[LK_RECORD_MARK])
{
    return record_mark_to_text(lk__row_writer_path(writer), lk__row_writer_mark(writer), mark);
}

lk_row_writer *lk_row_writer_reopen(const char *path, lk_row_format format, const char *mark)
{
    int64_t bytes;
    return record_mark_check(path, mark, &bytes) == LK_OK ? lk__row_writer_reopen(path, format, bytes) : NULL;
}

lk_status lk_event_writer_mark(lk_event_writer *writer, char mark[LK_RECORD_MARK])
{
    return record_mark_to_text(lk_event_writer_path(writer), lk__event_writer_mark(writer), mark);
}

lk_event_writer *lk_event_writer_reopen(const char *path, const char *mark)
{
    int64_t bytes;
    return record_mark_check(path, mark, &bytes) == LK_OK ? lk__event_writer_reopen(path, bytes) : NULL;
}
