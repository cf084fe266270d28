/* Labeled images before they become a data set: a reader of files, the generator or the program provides them. */
#pragma once

#include "data/formats/idx.h"
#include "lockstep/data.h"

/* A list of strings, which it owns; data/names.h has its functions. */
typedef struct lk_names {
    char **at;
    int64_t count, capacity;
} lk_names;

/* A zeroed lk_samples is empty. It owns everything that it points to, except the images, floats and function of
 * lk_dataset_from_arrays. */
typedef struct lk_samples {
    int64_t count, channels, height, width, classes;
    const uint8_t *images;  /* [count,C,H,W], inside `memory`, `image_file` or `mapping`; or borrowed */
    const float *floats;    /* [count,C,H,W], borrowed; if there are no `images` */
    lk_read_sample_fn read; /* gives images; if there are neither `images` nor `floats` */
    void *read_user;
    int32_t *labels; /* [count]; aligned */
    uint8_t *memory; /* decoded or copied images; aligned; NULL: none */
    lk_idx image_file;
    const uint8_t *mapping; /* a packed cache; NULL: none */
    size_t mapping_size;
    lk_names class_names; /* [classes], or empty */
    lk_names files;       /* [count]: the file of each sample; or empty */
    bool generated;       /* by the generator, which may have been asked for the first samples of a set only */
} lk_samples;

void lk__samples_free(lk_samples *samples);

/* lk__samples_allocate takes memory for `count` samples of the sizes that are set, and sets the count. The other two
 * take it for images or labels alone, and leave the count. After a failure nothing is allocated.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__samples_allocate(lk_samples *samples, int64_t count);
lk_status lk__samples_allocate_images(lk_samples *samples, int64_t count);
lk_status lk__samples_allocate_labels(lk_samples *samples, int64_t count);

/* For samples that are read one by one: makes sure that one more sample fits. When samples->count has reached
 * *capacity (0 at first), doubles it and moves the samples. The caller increments samples->count. Errors:
 * LK_ERR_MEMORY. */
lk_status lk__samples_reserve(lk_samples *samples, int64_t *capacity);

/* Fails with LK_ERR_FORMAT if a label is not below samples->classes; the message names `source`. */
lk_status lk__samples_check_labels(const lk_samples *samples, const char *source);

/* Replaces the images and labels of `samples` by those of `made`, which is taken. Classes, names and origin stay. */
void lk__samples_adopt(lk_samples *samples, lk_samples *made);

/* Keeps copies of the samples with the given indices, in that order. samples->files is left as it is.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__samples_select(lk_samples *samples, const int64_t *indices, int64_t count);

/* Writes the indices of a split's samples when `share` of each class is held out for validation: LK_SPLIT_TEST gets the
 * samples held out, LK_SPLIT_TRAIN the rest. The choice depends on the labels alone. indices[count] are ascending;
 * *chosen is how many are written. Errors: LK_ERR_MEMORY. */
lk_status lk__held_out(const int32_t *labels, int64_t count, double share, lk_split split, int64_t *indices,
                       int64_t *chosen);
