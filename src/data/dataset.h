/* What a data set is made of, for those who make one. */
#ifndef LK_DATA_DATASET_H
#define LK_DATA_DATASET_H

#include "lockstep/data.h"

/* What is known of a kind of data set before its files are read. All static. */
typedef struct lk__dataset_kind {
    const char *name;
    int64_t classes;
    const char *const *class_names; /* [classes], or NULL */
} lk__dataset_kind;

lk_status lk__dataset_from_idx(const lk__dataset_kind *kind, const char *images_path, const char *labels_path,
                               int64_t limit, lk_dataset **dataset);
lk_status lk__dataset_generate(const lk__dataset_kind *kind, lk_split split, int64_t limit, lk_dataset **dataset);

/* How many classes have no sample within the limit, or with `whole` in the whole set; *first is one of them. */
int64_t lk__dataset_empty_classes(const lk_dataset *dataset, bool whole, int64_t *first);

#endif
