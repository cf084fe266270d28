/* What a run leaves behind while it goes on: TensorBoard's event files, CSV and JSON lines.
 *
 * Every record is written whole as soon as it is made, so a program that dies leaves a file that can be read. Where a
 * write fails (a full disk), what had got into the file of that record is taken out again, and the error says so; later
 * records are tried anew. A writer is used by one thread at a time. */
#ifndef LOCKSTEP_RECORD_H
#define LOCKSTEP_RECORD_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a folder, and those above it that are missing. Errors: LK_ERR_IO, LK_ERR_ARGUMENT (empty, too long). */
LK_API lk_status lk_make_directory(const char *path);

/* ---- rows: CSV and JSON lines ---- */

typedef enum lk_field_kind { LK_FIELD_NONE, LK_FIELD_INT, LK_FIELD_REAL, LK_FIELD_TEXT, LK_FIELD_BOOL } lk_field_kind;

/* A named value. LK_FIELD_NONE is missing: an empty field of CSV, null in JSON. */
typedef struct lk_field {
    const char *name;
    lk_field_kind kind;
    int64_t integer; /* of LK_FIELD_INT; LK_FIELD_BOOL: 0 or 1 */
    double real;
    const char *text; /* UTF-8; NULL: missing */
} lk_field;

/* (lk_field[]){LK_INT("epoch", 3), LK_REAL("loss", 0.25), LK_TEXT("model", "lenet")} */
#define LK_NONE(name_) ((lk_field){.name = (name_), .kind = LK_FIELD_NONE})
#define LK_INT(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_INT, .integer = (value_)})
#define LK_REAL(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_REAL, .real = (value_)})
#define LK_TEXT(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_TEXT, .text = (value_)})
#define LK_BOOL(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_BOOL, .integer = (value_)})

/* LK_ROWS_CSV: RFC 4180 with lines that end in LF; the first line holds the names. LK_ROWS_JSON: an object a line.
 * Numbers have the fewest digits that read back to the same double, and a point in any locale. What is not finite is
 * nan, inf and -inf in CSV; in JSON, which has no such numbers, the strings "NaN", "Infinity" and "-Infinity", as
 * Protocol Buffers write them. */
typedef enum lk_row_format { LK_ROWS_CSV, LK_ROWS_JSON } lk_row_format;

typedef struct lk_row_writer lk_row_writer;

/* Opens `path`. `append` false: what was there goes. `append` true: rows are added to it, and the first one takes out a
 * last line that a dying program left unfinished. NULL on failure: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_row_writer *lk_row_writer_new(const char *path, lk_row_format format, bool append);
LK_API void lk_row_writer_release(lk_row_writer *writer);

/* Adds a row. Errors: LK_ERR_ARGUMENT (no fields, a field without a name; CSV: names that differ from those of the
 * first row), LK_ERR_FORMAT (the file that is appended to is no such file, or of other columns; it is left as it is),
 * LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_row_write(lk_row_writer *writer, const lk_field *fields, int count);

/* Writes CSV's line of names before there is a row, where the file has none; of JSON lines nothing. Of the fields only
 * the names count. Errors: as lk_row_write. */
LK_API lk_status lk_row_names(lk_row_writer *writer, const lk_field *fields, int count);

/* ---- TensorBoard's event files ---- */

/* A file `events.out.tfevents.SECONDS.HOST.PID.N` of TFRecords, each an Event of TensorFlow's event.proto
 * ("brain.Event:2"). Tags with slashes are grouped by what comes before the slash. Steps may be any number; TensorBoard
 * expects them to grow. `wall_time` is in seconds since 1970; 0: now. */
typedef struct lk_event_writer lk_event_writer;

/* Makes a new event file in `dir`, and the folder where it is missing. NULL on failure: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_event_writer *lk_event_writer_new(const char *dir);
LK_API void lk_event_writer_release(lk_event_writer *writer);

/* The file's path; valid as long as the writer. */
LK_API const char *lk_event_writer_path(const lk_event_writer *writer);

/* A point of a curve. `value` is rounded to float. Errors of this and the next two: LK_ERR_ARGUMENT (no tag),
 * LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_event_scalar(lk_event_writer *writer, const char *tag, int64_t step, double value,
                                 double wall_time);

/* The distribution of values[count], in 30 buckets of one width between the least and the greatest. Values that are not
 * finite are left out; with none left the histogram is an empty one. */
LK_API lk_status lk_event_histogram(lk_event_writer *writer, const char *tag, int64_t step, const float *values,
                                    int64_t count, double wall_time);

/* A text that TensorBoard shows as Markdown. */
LK_API lk_status lk_event_text(lk_event_writer *writer, const char *tag, int64_t step, const char *markdown,
                               double wall_time);

/* Waits until everything written so far is on disk (fdatasync): what a loss of power would take otherwise. */
LK_API lk_status lk_event_writer_flush(lk_event_writer *writer);

/* ---- records that go on ---- */

/* For loops of one's own that go on from checkpoints: where records stand, as a text to remember with the checkpoint
 * (lk_checkpoint_setting), so that they go on without gaps or repeats. lk_callback_log_dir does so by itself. */
enum { LK_RECORD_MARK = 48 };

/* Of all that has been written so far. Errors: LK_ERR_IO (a file that cannot be read, as a pipe). */
LK_API lk_status lk_row_writer_mark(lk_row_writer *writer, char mark[LK_RECORD_MARK]);
LK_API lk_status lk_event_writer_mark(lk_event_writer *writer, char mark[LK_RECORD_MARK]);

/* Opens a file again, and takes out what was written behind the mark. NULL on failure: LK_ERR_STATE (it is gone, or
 * does not begin with what was marked; it is left as it is), LK_ERR_ARGUMENT (no mark), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_row_writer *lk_row_writer_reopen(const char *path, lk_row_format format, const char *mark);
LK_API lk_event_writer *lk_event_writer_reopen(const char *path, const char *mark);

#ifdef __cplusplus
}
#endif

#endif
