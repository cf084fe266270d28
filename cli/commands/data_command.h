/* Functions shared by the parts of `lockstep data`, and the parts themselves. */
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

/* Names of the lk_normalize_mode values: "none", "center" and "standard"; NULL after the last. */
extern const char *const cli_normalize_modes[];

/* Opens a split of the data set `name` with the settings of `config`; progress goes to stderr. */
lk_status cli_data_open(const data_config *config, const char *name, lk_split split, lk_dataset **dataset);

/* Opens the training set of --data. "auto" becomes the one that is there, fashion-mnist or, with a note, synthetic. */
lk_status cli_data_open_train(data_config *config, lk_dataset **dataset);

/* Prints "1x28x28". */
void cli_data_print_shape(const lk_dataset *dataset);

/* Returns the name of a class. If it has none, writes "class 3" to `text` and returns that. */
const char *cli_data_class(const lk_dataset *dataset, int64_t label, char text[32]);

/* Each returns an exit status. */
int cli_data_preview(data_config *config);
int cli_data_info(data_config *config);
int cli_data_fetch(data_config *config);
