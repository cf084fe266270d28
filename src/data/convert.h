/* Resizes samples that are in memory as bytes, converts their channels, and parses the options for both. */
#pragma once

#include "data/samples.h"

/* Converts `samples` to the size in opts->resize and the number of channels in opts->channels, unless they have both
 * already. A conversion drops the images beyond opts->limit but keeps all labels. `source` is named in messages.
 * Errors: LK_ERR_ARGUMENT (also: a change of channels between other numbers than 1 and 3), LK_ERR_MEMORY. */
lk_status lk__samples_convert(lk_samples *samples, const lk_dataset_opts *opts, const char *source);

/* Reads one to three numbers from 1 to LK_IMAGE_MAX_SIDE, joined by x. Returns how many, or 0 if the text is anything
 * else. */
int lk__read_sizes(const char *text, int64_t size[3]);

/* Parse "HxW", and "CxHxW" or "HxW". NULL and "" give zeroes. Errors: LK_ERR_ARGUMENT. */
lk_status lk__parse_resize(const char *text, int64_t *height, int64_t *width);
lk_status lk__parse_shape(const char *text, int64_t *channels, int64_t *height, int64_t *width);

/* Checks the options that can be checked without data. Errors: LK_ERR_ARGUMENT. */
lk_status lk__check_data_opts(const lk_dataset_opts *opts);

/* Fails with LK_ERR_ARGUMENT if an option that is for CSV alone is set. `name`: of data that are not CSV. */
lk_status lk__refuse_csv_opts(const lk_dataset_opts *opts, const char *name);
