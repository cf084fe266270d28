/* Sections of a page about one run, each from a file of the run's folder. They append nothing on failure; errors are
 * those of reading the file: LK_ERR_NOT_FOUND, LK_ERR_IO, LK_ERR_FORMAT, LK_ERR_MEMORY. */
#pragma once

#include "io/bytes.h"

/* The confusion matrix, the most frequent mistakes, and precision and recall of each class. matrix: the picture to show
 * instead of a table if there are too many classes for one. */
lk_status lk__page_put_evaluation(lk_bytes *out, const char *path, const char *matrix);

/* Draws what each device and thread did during a step in the middle of the trace. */
lk_status lk__page_put_trace(lk_bytes *out, const char *path);

/* Tells where the time of a step went, and what several devices gained. */
lk_status lk__page_put_scaling(lk_bytes *out, const char *path);
