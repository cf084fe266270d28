/* Finds the files of a known data set on this machine, and downloads them if they are missing. */
#pragma once

#include "data/catalog/catalog.h"

#include <limits.h>

typedef struct lk_dataset_files {
    char path[LK__FILES][PATH_MAX];
} lk_dataset_files;

/* Looks for the images and labels of a split in opts->dir, $LOCKSTEP_DATA and the cache, in that order, and downloads
 * into the cache what none of them has. Finding one of the two files without the other is an error, except in the
 * cache, where an interrupted download may have left one. Errors: LK_ERR_NOT_FOUND (not found, and cannot or must not
 * be downloaded; the message lists the folders searched), LK_ERR_IO (a file exists but cannot be reached),
 * LK_ERR_FORMAT (opts->verify: a file has another content), LK_ERR_INTERRUPTED, LK_ERR_MEMORY. */
lk_status lk__dataset_find_files(const lk_catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                                 lk_dataset_files *files);
