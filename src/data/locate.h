/* Where the files of a data set are. */
#ifndef LK_DATA_LOCATE_H
#define LK_DATA_LOCATE_H

#include "data/catalog.h"

#include <limits.h>

typedef struct lk__located {
    char path[LK__FILES][PATH_MAX];
} lk__located;

/* Looks for the images and labels of a split in opts->dir, $LOCKSTEP_DATA and the cache, and downloads into the cache
 * what is in none of them. One of the two files without the other is an error, save in the cache, which a download may
 * have left half full.
 * Errors: LK_ERR_NOT_FOUND (in none of them, and not to be downloaded; the message lists the places), LK_ERR_IO
 * (something is there and cannot be reached), LK_ERR_FORMAT (opts->verify: a file is another one), LK_ERR_INTERRUPTED,
 * LK_ERR_MEMORY. */
lk_status lk__locate(const lk__catalog_entry *entry, lk_split split, const lk_dataset_opts *opts, lk__located *located);

#endif
