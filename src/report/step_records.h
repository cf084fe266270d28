/* Reads the files of lk_callback_steps. */
#pragma once

#include "report/record_file.h"

#include <stdint.h>

enum { LK_STEP_NUMBER, LK_STEP_EPOCH, LK_STEP_LOSS, LK_STEP_ACCURACY, LK_STEP_RATE, LK_STEP_COLUMNS };

/* A zeroed one is empty. */
typedef struct lk_step_records {
    int64_t count, capacity;
    double *column[LK_STEP_COLUMNS]; /* [count]; NaN: not measured */
    lk_record_tail tail;
} lk_step_records;

/* Reads JSON lines; an incomplete last line, which a dying program has left, is ignored. With the steps of an earlier
 * call reads only those that have come since. Errors: LK_ERR_NOT_FOUND,
 * LK_ERR_IO, LK_ERR_FORMAT (file, line, and what is wrong there), LK_ERR_MEMORY. Free *steps in any case. */
lk_status lk__step_records_read(const char *path, lk_step_records *steps);
void lk__step_records_free(lk_step_records *steps);
