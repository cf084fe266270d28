/* Opens the user's own data sets, which are named by the path of a folder or file. */
#pragma once

#include "data/samples.h"

#include <limits.h>

/* Returns whether a file or folder of that path exists. */
bool lk__is_own_data(const char *path);

/* Returns whether lk__own_data_open reads that path as CSV. */
bool lk__own_data_is_csv(const char *path);

/* lk_dataset_open for a path: finds out which format it has. `opts` have been checked. */
lk_status lk__own_data_open(const char *path, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset);
