/* Names of record files. Run 1 writes "FOLDER/STEM.EXT", run 7 "FOLDER/STEM-7.EXT"; the extension includes its dot. */
#pragma once

#include "lockstep/status.h"

#include <limits.h>

/* The run's number in the name of a file with this stem and extension; 0 for any other name. */
int lk__record_number(const char *name, const char *stem, const char *extension);

/* The path of a run's file. Errors: LK_ERR_ARGUMENT (the path is too long). */
lk_status lk__record_path(const char *folder, const char *stem, const char *extension, int number, char path[PATH_MAX]);

/* *last: the greatest number below `before` among the folder's files; 0: there is none. Errors: LK_ERR_IO. */
lk_status lk__record_names_last(const char *folder, const char *stem, const char *extension, int before, int *last);
