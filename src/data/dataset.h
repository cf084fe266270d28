/* Makes a data set of the samples that a reader, the generator or the program provides. */
#pragma once

#include "data/samples.h"
#include "ops/pixels.h"

/* Facts about a kind of data set, known before its files are read. All pointers are to static data. */
typedef struct lk_dataset_kind {
    const char *name;
    int64_t classes;
    const char *const *class_names; /* [classes], or NULL */
} lk_dataset_kind;

/* Sets the number of classes and copies their names. class_names: [classes], or NULL. After a failure the caller frees
 * `samples`. Errors: LK_ERR_MEMORY. */
lk_status lk__samples_set_classes(lk_samples *samples, int64_t classes, const char *const *class_names);

/* Makes a data set of the first `limit` samples; 0: of all. Takes `samples`, also on failure. Errors: LK_ERR_MEMORY. */
lk_status lk__dataset_make(const char *name, const char *source, lk_samples *samples, int64_t limit,
                           lk_dataset **dataset);

/* As lk__dataset_make, but first holds out the validation set, resizes and converts as `opts` say. With opts->val_split
 * above 0 `samples` must be the training set, whatever the split. Errors as lk_dataset_open. */
lk_status lk__dataset_finish(const char *name, const char *source, lk_samples *samples, lk_split split,
                             const lk_dataset_opts *opts, lk_dataset **dataset);

/* Read or generate the samples of a known kind, with its classes' names. Both overwrite `samples`, and leave it empty
 * on failure. Errors as lk_dataset_open_idx. */
lk_status lk__samples_from_idx(const lk_dataset_kind *kind, const char *images_path, const char *labels_path,
                               lk_samples *samples);
lk_status lk__samples_generate(const lk_dataset_kind *kind, lk_split split, int64_t limit, lk_samples *samples);

/* Sets *pixels to those of a sample, valid as long as the data set. A function's image goes to `memory` [C,H,W], which
 * only a data set with lk__dataset_reads needs. Errors: those of lk_dataset_arrays.read. */
lk_status lk__dataset_pixels(const lk_dataset *dataset, int64_t index, float *memory, lk_pixels *pixels);

/* For lk__augmentation_make: does the same for a data set and memory. */
typedef struct lk_dataset_reading {
    const lk_dataset *dataset;
    float *memory;
} lk_dataset_reading;

lk_status lk__dataset_read(void *reading, int64_t index, lk_pixels *pixels);

/* Returns whether a function of the program gives the images. */
bool lk__dataset_reads(const lk_dataset *dataset);

/* Values of an image. */
int64_t lk__dataset_image_values(const lk_dataset *dataset);

/* Counts the classes without a sample among the samples up to the limit, or with `whole` in the whole set. *first is
 * the lowest such class. Errors: LK_ERR_MEMORY. */
lk_status lk__dataset_empty_classes(const lk_dataset *dataset, bool whole, int64_t *empty, int64_t *first);
