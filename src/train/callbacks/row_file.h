/* A file of rows that a callback writes, and goes on with if a training is resumed. */
#pragma once

#include "io/records/row_writer.h"
#include "lockstep/train.h"

typedef struct lk_row_file {
    char *path;
    lk_row_format format;
    lk_row_writer *writer; /* NULL: not open yet */
} lk_row_file;

/* Copies the path. Errors: LK_ERR_MEMORY. */
lk_status lk__row_file_new(lk_row_file *file, const char *path, lk_row_format format);
void lk__row_file_free(lk_row_file *file);

/* Opens a new file, unless lk__row_file_resume has opened the one that was marked. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__row_file_open(lk_row_file *file);

void lk__row_file_save(const lk_row_file *file, lk_state *state);
lk_status lk__row_file_resume(lk_row_file *file, const lk_state *state);

/* Gives an empty cell if nothing was measured. */
lk_field lk__mean_field(const char *name, lk_mean value);
