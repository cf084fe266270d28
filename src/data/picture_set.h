/* Data sets made of folders of pictures. */
#ifndef LK_DATA_PICTURE_SET_H
#define LK_DATA_PICTURE_SET_H

#include "data/folder.h"

/* The pictures of `folder`, which was scanned and is of a split, from the packed cache or decoded into it. Takes the
 * classes' names out of `folder`. All paths in it begin with `root`, which names the data set in messages and the
 * cache; `opts` are checked. Errors: LK_ERR_FORMAT (pictures that cannot be used, without opts->skip_bad; of several
 * sizes, without opts->resize), LK_ERR_MEMORY. */
lk_status lk__picture_set_open(const char *root, lk_split split, const lk_dataset_opts *opts, lk__folder *folder,
                               lk__samples *samples);

#endif
