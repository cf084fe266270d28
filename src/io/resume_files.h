/* Records that go on where a checkpoint was made: what came after it is taken out. */
#ifndef LK_IO_RESUME_FILES_H
#define LK_IO_RESUME_FILES_H

#include "io/append_file.h"
#include "lockstep/record.h"

lk__file_mark lk__row_writer_mark(lk_row_writer *writer);
const char *lk__row_writer_path(const lk_row_writer *writer);
lk__file_mark lk__event_writer_mark(lk_event_writer *writer);

/* Opens a file of rows again, with the first so many bytes of it, whole lines, names included; NULL on failure:
 * LK_ERR_IO, LK_ERR_MEMORY. */
lk_row_writer *lk__row_writer_reopen(const char *path, lk_row_format format, int64_t bytes);

/* The same of an event file. */
lk_event_writer *lk__event_writer_reopen(const char *path, int64_t bytes);

#endif
