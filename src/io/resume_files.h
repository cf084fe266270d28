/* Records that go on where a checkpoint was made: what came after it is taken out. */
#ifndef LK_IO_RESUME_FILES_H
#define LK_IO_RESUME_FILES_H

#include "lockstep/record.h"

/* Whole lines, or records, so far. Errors: LK_ERR_IO. */
lk_status lk__row_writer_lines(const lk_row_writer *writer, int64_t *lines);
int64_t lk__event_writer_records(const lk_event_writer *writer);

/* Opens a file of rows again, with the first so many lines of it, names included; NULL on failure: LK_ERR_IO,
 * LK_ERR_MEMORY. */
lk_row_writer *lk__row_writer_reopen(const char *path, lk_row_format format, int64_t lines);

/* The same of an event file, and its records. */
lk_event_writer *lk__event_writer_reopen(const char *path, int64_t records);

#endif
