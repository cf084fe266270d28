/* Turns a folder of pictures into samples, through the packed cache. */
#pragma once

#include "data/pictures/picture_folder.h"

/* Reads the pictures of `folder`, which was scanned for a split: from the packed cache, or decodes them and writes the
 * cache. Unless opts->channels is set, they become color if any picture of the training set is. Takes the classes'
 * names out of `folder`. All paths in `folder` begin with `root`, which names the data set in messages and in the
 * cache; `opts` have been checked. Errors: LK_ERR_FORMAT (pictures that cannot be used, without opts->skip_bad; several
 * sizes, without opts->resize), LK_ERR_MEMORY, LK_ERR_INTERRUPTED. */
lk_status lk__picture_set_open(const char *root, lk_split split, const lk_dataset_opts *opts, lk_picture_folder *folder,
                               lk_samples *samples);
