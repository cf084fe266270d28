/* What a data set is made of, for those who make one. */
#ifndef LK_DATA_DATASET_H
#define LK_DATA_DATASET_H

#include "data/samples.h"

/* lk_dataset_source of what no file holds. */
#define LK__GENERATED "generated"

/* What is known of a kind of data set before its files are read. All static. */
typedef struct lk__dataset_kind {
    const char *name;
    int64_t classes;
    const char *const *class_names; /* [classes], or NULL */
} lk__dataset_kind;

/* Takes `samples`, after an error too. The first `limit` of them are the data set; 0: all. Errors: LK_ERR_MEMORY. */
lk_status lk__dataset_make(const char *name, const char *source, lk__samples *samples, int64_t limit,
                           lk_dataset **dataset);

/* The same of what opts say: held out or not, resized, with other channels, limited. `samples` are those of the
 * training set where opts->val_split is above 0. Errors as lk_dataset_open. */
lk_status lk__dataset_finish(const char *name, const char *source, lk__samples *samples, lk_split split,
                             const lk_dataset_opts *opts, lk_dataset **dataset);

/* The samples of a known kind, with its classes' names. `samples` is set to nothing first; after a failure there is
 * nothing to free. Errors as lk_dataset_open_idx. */
lk_status lk__samples_from_idx(const lk__dataset_kind *kind, const char *images_path, const char *labels_path,
                               lk__samples *samples);
lk_status lk__samples_generate(const lk__dataset_kind *kind, lk_split split, int64_t limit, lk__samples *samples);

/* How many classes have no sample within the limit, or with `whole` in the whole set; *first is the first of them.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__dataset_empty_classes(const lk_dataset *dataset, bool whole, int64_t *empty, int64_t *first);

#endif
