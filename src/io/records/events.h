/* Continues event files after an interruption; lockstep/record.h has the rest. */
#pragma once

#include "io/append_file.h"
#include "lockstep/record.h"

/* Truncates an event file to its first `bytes` bytes, which must be whole events, and opens it for appending. NULL on
 * failure: LK_ERR_IO, LK_ERR_MEMORY. */
lk_event_writer *lk__event_writer_reopen(const char *path, int64_t bytes);

/* Marks the events so far. */
lk_file_mark lk__event_writer_mark(lk_event_writer *writer);
