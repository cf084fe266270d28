/* Data sets of the user's own: what a path leads to. */
#ifndef LK_DATA_OWN_DATA_H
#define LK_DATA_OWN_DATA_H

#include "data/samples.h"

#include <limits.h>

/* Whether there is a file or a folder of that path. */
bool lk__is_own_data(const char *path);

/* lk_dataset_open of a path; `opts` are checked. */
lk_status lk__own_data_open(const char *path, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset);

/* --- kinds: each file of its own ---------------------------------------------------------------------------------- */

/* Where the first of FOLDER/NAME, FOLDER/NAME.gz is a file: its path. */
bool lk__find_file(const char *folder, const char *name, char path[PATH_MAX]);

/* LK_ERR_ARGUMENT: what has no test set, and which one was expected. That is what opts->val_split is for. */
lk_status lk__no_test_set(const char *path, const char *expected);

/* Of the folder's split, with classes; *source is the path of the images, or the first of them. `samples` is set to
 * nothing first; after a failure there is nothing to free. Errors as lk_dataset_open. */
bool lk__is_cifar(const char *folder);
lk_status lk__cifar_read(const char *folder, lk_split split, char source[PATH_MAX], lk__samples *samples);

bool lk__is_idx_folder(const char *folder);
lk_status lk__idx_folder_read(const char *folder, lk_split split, char source[PATH_MAX], lk__samples *samples);

/* Classes are as many as the largest label says; `training` NULL: the file's own, else the training set's file, in
 * whose classes all labels have to be. */
lk_status lk__csv_read(const char *path, const char *training, const lk_dataset_opts *opts, lk__samples *samples);

#endif
