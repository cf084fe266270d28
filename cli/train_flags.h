/* The flags that training commands share. */
#ifndef LK_CLI_TRAIN_FLAGS_H
#define LK_CLI_TRAIN_FLAGS_H

#include "lockstep/train.h"

/* Sets `config`, a struct whose first member is an lk_train_config, to the defaults of `options`, then to the settings
 * of the recipe that --recipe names, then to the other flags, wherever on the command line they stand. `amend`, NULL:
 * nothing, changes what a command starts from; it is called before the other flags are read. */
lk_status cli_parse_train(const lk_option *options, size_t count, int argc, char **argv, void *config,
                          void (*amend)(void *config));

#endif
