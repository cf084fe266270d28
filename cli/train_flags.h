/* The flags that training commands share. */
#ifndef LK_CLI_TRAIN_FLAGS_H
#define LK_CLI_TRAIN_FLAGS_H

#include "lockstep/train.h"

/* Sets `config`, a struct whose first member is an lk_train_config, to the defaults of `options`, then to the settings
 * of the recipe that --recipe names, then to the other flags, wherever on the command line they stand. `amend`, NULL:
 * nothing, changes what a command starts from; it is called before the other flags are read. */
lk_status cli_parse_train(const lk_option *options, size_t count, int argc, char **argv, void *config,
                          void (*amend)(void *config));

/* For a command that trains without showing or keeping what train does: fills `table`, of CLI_MAX_OPTIONS, with its own
 * options and train's but for those of records and printing and those named in `without`, which ends with NULL (NULL:
 * none); gives how many there are. */
size_t cli_train_options(const lk_option *own, size_t n_own, const char *const *without, lk_option *table);

/* 0; or, where the strategy is one of several processes, which `lockstep train` alone takes part in, a printed error
 * and its exit status. */
int cli_check_one_process(const lk_train_config *config);

/* Switches off what those left out would ask for, where a recipe does. */
void cli_leave_out_records(lk_train_config *config);

/* Asks for no evaluation, nor for what needs one. */
void cli_leave_out_evaluation(lk_train_config *config);

#endif
