/* Reads a folder with a data set in IDX files. */
#pragma once

#include "data/samples.h"

#include <limits.h>

/* Returns whether the folder has files train-images* and train-labels*. */
bool lk__is_idx_folder(const char *folder);

/* Reads a split. The number of classes is the largest label of the training set plus one. `source` is set to the path
 * of the images. Overwrites `samples`, and leaves it empty on failure. Errors as lk_dataset_open. */
lk_status lk__idx_folder_read(const char *folder, lk_split split, char source[PATH_MAX], lk_samples *samples);
