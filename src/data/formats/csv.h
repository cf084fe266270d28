/* Reads samples from a CSV file. */
#pragma once

#include "data/samples.h"

/* Reads the samples of `path`. The number of classes is the largest label of the training set plus one. `training` is
 * the file of the training set, and all labels in `path` must be below its number of classes; NULL: `path` itself.
 * Overwrites `samples`, and leaves it empty on failure. Errors as lk_dataset_open. */
lk_status lk__csv_read(const char *path, const char *training, const lk_dataset_opts *opts, lk_samples *samples);
