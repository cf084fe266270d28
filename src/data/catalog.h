/* The data sets that are known by name. */
#ifndef LK_DATA_CATALOG_H
#define LK_DATA_CATALOG_H

#include "data/dataset.h"
#include "data/fetch.h"

enum { LK__IMAGES, LK__LABELS, LK__FILES };

typedef struct lk__catalog_entry {
    lk__dataset_kind kind;
    bool generated; /* else read from files: */
    const char *base_urls[LK__FETCH_MAX_URLS];
    lk__remote_file files[2][LK__FILES]; /* [lk_split] */
} lk__catalog_entry;

/* NULL when the name is not known. */
const lk__catalog_entry *lk__catalog_find(const char *name);

/* lk_dataset_open of an entry, which need not be in the catalogue. `opts` is not NULL. */
lk_status lk__catalog_open(const lk__catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                           lk_dataset **dataset);

#endif
