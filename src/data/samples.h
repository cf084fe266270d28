/* Samples on their way into a data set, wherever they come from. */
#ifndef LK_DATA_SAMPLES_H
#define LK_DATA_SAMPLES_H

#include "data/idx.h"
#include "lockstep/data.h"

/* A list of texts of its own. */
typedef struct lk__names {
    char **at;
    int64_t count, capacity;
} lk__names;

/* Copies `name`. Errors: LK_ERR_MEMORY. */
lk_status lk__names_add(lk__names *names, const char *name);
void lk__names_sort(lk__names *names); /* byte by byte, as strcmp does */
void lk__names_free(lk__names *names);

/* Zeroes: none. Owns what it points to. */
typedef struct lk__samples {
    int64_t count, channels, height, width, classes;
    const uint8_t *images; /* [count,C,H,W], inside `memory`, `image_file` or `mapping` */
    int32_t *labels;       /* [count]; aligned */
    uint8_t *memory;       /* aligned */
    lk__idx image_file;
    const uint8_t *mapping; /* of a packed cache */
    size_t mapping_size;
    lk__names class_names; /* [classes], or empty */
    lk__names files;       /* [count]: each sample's own; or empty */
} lk__samples;

void lk__samples_free(lk__samples *samples);

/* Takes memory for `count` samples of the sizes that are set: `memory`, to which `images` points, and `labels`; or for
 * one of them, without setting the count. Errors: LK_ERR_MEMORY, after which there is nothing of it. */
lk_status lk__samples_allocate(lk__samples *samples, int64_t count);
lk_status lk__samples_allocate_images(lk__samples *samples, int64_t count);
lk_status lk__samples_allocate_labels(lk__samples *samples, int64_t count);

/* For samples that come one by one: makes room for one more than samples->count, by doubling; the caller counts.
 * *capacity: how many there is room for, 0 at first. */
lk_status lk__samples_make_room(lk__samples *samples, int64_t *capacity);

/* Refuses labels that are not below samples->classes: `source` is named. Errors: LK_ERR_FORMAT. */
lk_status lk__samples_check_labels(const lk__samples *samples, const char *source);

/* Puts what was `made` of them in their place. Classes and names stay. */
void lk__samples_adopt(lk__samples *samples, lk__samples *made);

/* Leaves the given ones, in their order, copied; not the names of their files. Errors: LK_ERR_MEMORY. */
lk_status lk__samples_select(lk__samples *samples, const int64_t *indices, int64_t count);

/* What opts->resize and opts->channels ask for, where the samples are not like that yet.
 * Images beyond opts->limit are not there then. Errors: LK_ERR_ARGUMENT (also: channels that are neither grey nor
 * colour), LK_ERR_MEMORY. */
lk_status lk__samples_convert(lk__samples *samples, const lk_dataset_opts *opts, const char *source);

/* Which of `count` samples a split has where `share` of each class is held out for validation: a function of the labels
 * alone. indices[count], ascending. Errors: LK_ERR_MEMORY. */
lk_status lk__held_out(const int32_t *labels, int64_t count, double share, lk_split split, int64_t *indices,
                       int64_t *chosen);

/* Numbers from 1 to LK_IMAGE_MAX_SIDE, joined by x: how many there are, at most three; 0 where that is not so. */
int lk__read_sizes(const char *text, int64_t size[3]);

/* "HxW" and "CxHxW" or "HxW". NULL leaves zeroes. Errors: LK_ERR_ARGUMENT. */
lk_status lk__parse_resize(const char *text, int64_t *height, int64_t *width);
lk_status lk__parse_shape(const char *text, int64_t *channels, int64_t *height, int64_t *width);

/* The checks of options that need no data. Errors: LK_ERR_ARGUMENT. */
lk_status lk__check_data_opts(const lk_dataset_opts *opts);

#endif
