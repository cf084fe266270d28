/* Reads a folder with CIFAR-10 or CIFAR-100 in the binary version. */
#pragma once

#include "data/samples.h"

#include <limits.h>

/* Returns whether the folder has the first training file of CIFAR-10 or CIFAR-100. */
bool lk__is_cifar(const char *folder);

/* Reads a split, with its classes. `source` is set to the path of the first file of images. Overwrites `samples`, and
 * leaves it empty on failure. Errors as lk_dataset_open. */
lk_status lk__cifar_read(const char *folder, lk_split split, char source[PATH_MAX], lk_samples *samples);
