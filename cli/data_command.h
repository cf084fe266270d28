/* What the parts of `lockstep data` share. */
#ifndef LK_CLI_DATA_COMMAND_H
#define LK_CLI_DATA_COMMAND_H

#include "lockstep/train.h"

typedef struct data_config {
    lk_train_config train; /* of its options those that say which data, and what becomes of them */
    const char *out;
    const char *mirror;
    bool verify;     /* what is known by name, by its checksums */
    int64_t samples; /* 0: as many as a preview has by itself */
    int64_t epoch;   /* the first is 1, as in what training prints */
} data_config;

/* "none", "center" and "standard". */
extern const char *const cli_normalize_modes[];

/* The data set that config->train names, with --mirror and progress on stderr. */
lk_status cli_data_open(const data_config *config, const char *name, lk_split split, lk_dataset **dataset);

/* "1x28x28" */
void cli_data_print_shape(const lk_dataset *dataset);

/* The name of a class, else "class 3" in `text`. */
const char *cli_data_class(const lk_dataset *dataset, int64_t label, char text[32]);

/* Each gives an exit status. */
int cli_data_preview(const data_config *config);
int cli_data_info(const data_config *config);
int cli_data_fetch(const data_config *config);

#endif
