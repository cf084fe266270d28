/* Writers for records of a run: TensorBoard's event files, CSV and JSON lines.
 *
 *     lk_row_writer *writer = lk_row_writer_new("epochs.csv", LK_ROWS_CSV, false);
 *     lk_row_write(writer, (lk_field[]){LK_INT("epoch", 3), LK_REAL("loss", 0.25)}, 2);
 *     lk_row_writer_release(writer);
 *
 * Every record is written at once and as a whole, so a program that dies leaves a readable file. If a write fails (a
 * full disk), the part of the record that is in the file is removed again, and the error says so; later records are
 * tried again. One thread at a time uses a writer. */
#ifndef LOCKSTEP_RECORD_H
#define LOCKSTEP_RECORD_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a folder with its parents, unless it is there. Errors: LK_ERR_IO, LK_ERR_ARGUMENT (a path that is empty or too
 * long). */
LK_API lk_status lk_make_directory(const char *path);

/* ---- rows: CSV and JSON lines ---- */

typedef enum lk_field_kind { LK_FIELD_NONE, LK_FIELD_INT, LK_FIELD_REAL, LK_FIELD_TEXT, LK_FIELD_BOOL } lk_field_kind;

/* A named value. LK_FIELD_NONE: no value, an empty field of CSV, null in JSON. */
typedef struct lk_field {
    const char *name;
    lk_field_kind kind;
    int64_t integer;  /* of LK_FIELD_INT; of LK_FIELD_BOOL: 0 or 1 */
    double real;      /* of LK_FIELD_REAL */
    const char *text; /* of LK_FIELD_TEXT: UTF-8; NULL: no value */
} lk_field;

#ifdef __cplusplus
#define LK_NONE(name_) (lk_field{(name_), LK_FIELD_NONE, 0, 0, nullptr})
#define LK_INT(name_, value_) (lk_field{(name_), LK_FIELD_INT, (value_), 0, nullptr})
#define LK_REAL(name_, value_) (lk_field{(name_), LK_FIELD_REAL, 0, (value_), nullptr})
#define LK_TEXT(name_, value_) (lk_field{(name_), LK_FIELD_TEXT, 0, 0, (value_)})
#define LK_BOOL(name_, value_) (lk_field{(name_), LK_FIELD_BOOL, (value_), 0, nullptr})
#else
#define LK_NONE(name_) ((lk_field){.name = (name_), .kind = LK_FIELD_NONE})
#define LK_INT(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_INT, .integer = (value_)})
#define LK_REAL(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_REAL, .real = (value_)})
#define LK_TEXT(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_TEXT, .text = (value_)})
#define LK_BOOL(name_, value_) ((lk_field){.name = (name_), .kind = LK_FIELD_BOOL, .integer = (value_)})
#endif

/* LK_ROWS_CSV: RFC 4180 with lines that end in LF; the first line holds the names. LK_ROWS_JSON: an object per line.
 * Numbers have the fewest digits that read back to the same double, and a decimal point in any locale. Numbers that are
 * not finite are nan, inf and -inf in CSV, and the strings "NaN", "Infinity" and "-Infinity" in JSON (as protobuf). */
typedef enum lk_row_format { LK_ROWS_CSV, LK_ROWS_JSON } lk_row_format;

typedef struct lk_row_writer lk_row_writer;

/* Opens `path`. append false: the file is emptied. append true: rows are added, and the first one removes an incomplete
 * last line, which a dying program has left. NULL on failure: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_row_writer *lk_row_writer_new(const char *path, lk_row_format format, bool append);
LK_API void lk_row_writer_release(lk_row_writer *writer);

/* Adds a row. Errors: LK_ERR_ARGUMENT (no fields, a field without a name; CSV: names that differ from those of the
 * first row), LK_ERR_FORMAT (appending to a file of another format or with other columns; it stays as it is),
 * LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_row_write(lk_row_writer *writer, const lk_field *fields, int count);

/* Writes the line of names of CSV before the first row, unless the file has one; for JSON it does nothing. Only the
 * names of the fields are used. Errors: those of lk_row_write. */
LK_API lk_status lk_row_names(lk_row_writer *writer, const lk_field *fields, int count);

/* ---- TensorBoard's event files ---- */

/* Writes a file `events.out.tfevents.SECONDS.HOST.PID.N` of TFRecords, each an Event of TensorFlow's event.proto
 * ("brain.Event:2"). TensorBoard groups tags by the part before a slash, and expects steps to grow. wall_time: seconds
 * since 1970; 0: now. */
typedef struct lk_event_writer lk_event_writer;

/* Makes a new event file in `dir`, and the folder if it is missing. NULL on failure: LK_ERR_IO, LK_ERR_ARGUMENT (a path
 * that is empty or too long), LK_ERR_MEMORY. */
LK_API lk_event_writer *lk_event_writer_new(const char *dir);
LK_API void lk_event_writer_release(lk_event_writer *writer);

/* The file's path; valid as long as the writer. */
LK_API const char *lk_event_writer_path(const lk_event_writer *writer);

/* Writes a point of a curve; `value` is rounded to float. Errors of this and the next two functions: LK_ERR_ARGUMENT
 * (no tag), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_event_scalar(lk_event_writer *writer, const char *tag, int64_t step, double value,
                                 double wall_time);

/* Writes a histogram of values[count], in 30 buckets of equal width from the least value to the greatest. Values that
 * are not finite are left out; without any left the histogram is empty. */
LK_API lk_status lk_event_histogram(lk_event_writer *writer, const char *tag, int64_t step, const float *values,
                                    int64_t count, double wall_time);

/* Writes a text that TensorBoard shows as Markdown. Errors: also LK_ERR_ARGUMENT (no text). */
LK_API lk_status lk_event_text(lk_event_writer *writer, const char *tag, int64_t step, const char *markdown,
                               double wall_time);

/* Waits until everything written so far is on disk (fdatasync), so that a power failure cannot lose it. */
LK_API lk_status lk_event_writer_flush(lk_event_writer *writer);

/* ---- advanced: records of a resumed training ---- */

/* For loops of your own that resume from checkpoints. A mark is a text that says how far records are written; keep it
 * with the checkpoint (lk_checkpoint_setting), and records continue without gaps or repetitions. lk_callback_log_dir
 * does this itself. */
enum { LK_RECORD_MARK = 48 };

/* Writes a mark of everything written so far. Errors: LK_ERR_IO (a file that cannot be read, such as a pipe). */
LK_API lk_status lk_row_writer_mark(lk_row_writer *writer, char mark[LK_RECORD_MARK]);
LK_API lk_status lk_event_writer_mark(lk_event_writer *writer, char mark[LK_RECORD_MARK]);

/* Opens a file again, and removes everything after the mark. NULL on failure: LK_ERR_STATE (the file is gone, or does
 * not begin with what was marked; it stays as it is), LK_ERR_ARGUMENT (not a mark), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_row_writer *lk_row_writer_reopen(const char *path, lk_row_format format, const char *mark);
LK_API lk_event_writer *lk_event_writer_reopen(const char *path, const char *mark);

#ifdef __cplusplus
}
#endif

#endif
