/* The data sets that are known by name. */
#pragma once

#include "data/catalog/fetch.h"
#include "data/dataset.h"

enum { LK__IMAGES, LK__LABELS, LK__FILES };

typedef struct lk_catalog_entry {
    lk_dataset_kind kind;
    bool generated;                            /* true: there are no files, and the rest is unused */
    const char *base_urls[LK__FETCH_MAX_URLS]; /* tried in this order */
    lk_remote_file files[2][LK__FILES];        /* [lk_split] */
} lk_catalog_entry;

/* NULL if the name is not known. */
const lk_catalog_entry *lk__catalog_find(const char *name);

/* lk_dataset_open for an entry, which need not be in the catalog. `opts` is not NULL. */
lk_status lk__catalog_open(const lk_catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                           lk_dataset **dataset);
