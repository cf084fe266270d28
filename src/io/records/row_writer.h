/* Continues row files after an interruption; lockstep/record.h has the rest. */
#pragma once

#include "io/append_file.h"
#include "lockstep/record.h"

/* Truncates a row file to its first `bytes` bytes, which must be whole lines and include the names, and opens it for
 * appending. NULL on failure: LK_ERR_IO, LK_ERR_MEMORY. */
lk_row_writer *lk__row_writer_reopen(const char *path, lk_row_format format, int64_t bytes);

/* Marks the rows so far. */
lk_file_mark lk__row_writer_mark(lk_row_writer *writer);
const char *lk__row_writer_path(const lk_row_writer *writer);
