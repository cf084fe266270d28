/* Finds the files of formats that consist of several files. */
#pragma once

#include "data/samples.h"

#include <limits.h>

/* Sets `path` to the first of FOLDER/NAME and FOLDER/NAME.gz that is a regular file. False: neither is. */
bool lk__find_file(const char *folder, const char *name, char path[PATH_MAX]);

/* Fails with LK_ERR_ARGUMENT: `path` has no test set, for which `expected` would be needed. The message suggests
 * opts->val_split. */
lk_status lk__no_test_set(const char *path, const char *expected);
