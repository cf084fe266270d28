/* Functions that the parts of `lockstep data` share, and the parts. */
#pragma once

#include "lockstep/train.h"

typedef struct data_config {
    lk_train_config train; /* only members set by options about data */
    const char *out;
    const char *mirror;
    bool verify;     /* compare files of a known data set with their checksums */
    int64_t samples; /* of a preview; 0: the default */
    int64_t epoch;   /* of a preview, from 1 */
} data_config;

/* "none", "center" and "standard". */
extern const char *const cli_normalize_modes[];

/* Opens a split of the data set `name` with the settings of `config`; progress goes to stderr. */
lk_status cli_data_open(const data_config *config, const char *name, lk_split split, lk_dataset **dataset);

/* Prints "1x28x28". */
void cli_data_print_shape(const lk_dataset *dataset);

/* The name of a class, or "class 3", written to `text`, if it has none. */
const char *cli_data_class(const lk_dataset *dataset, int64_t label, char text[32]);

/* Each gives an exit status. */
int cli_data_preview(const data_config *config);
int cli_data_info(const data_config *config);
int cli_data_fetch(const data_config *config);
