/* Options shared by the commands that train. */
#pragma once

#include "lockstep/train.h"

/* Sets `config`, a struct whose first member is an lk_train_config. Applies the defaults of
 * `options`, then the recipe that --recipe names, then the other options, whatever their order on
 * the command line. `amend` changes the defaults for one command; it is called after the recipe and
 * before the other options. NULL: no change. */
lk_status cli_parse_train(const lk_option *options, size_t count, int argc, char **argv, void *config,
                          void (*amend)(void *config));

/* The row of an option for a number of steps, stored in the field `steps` of a command's config. */
#define CLI_STEPS_OPTION(config, text)                                                             \
    {                                                                                              \
        .name = "steps", .type = LK_OPTION_INT64, .offset = offsetof(config, steps), .value = "N", \
        .default_text = "20", .minimum = 1, .maximum = 1000000, .help = (text)                     \
    }

/* The names of the options of the evaluation and of all that needs one, for `without` below. */
#define CLI_EVALUATION_OPTIONS                                                                                \
    "val-batch-size", "limit-val", "lr-plateau", "target-accuracy", "patience", "early-stop", "restore-best", \
        "precise-bn"

/* Fills the option table of a command that trains in one process, and keeps and prints no records. `table` holds
 * CLI_MAX_OPTIONS. It gets the command's own options, then those of train, except for records, printing, checkpoints,
 * several processes and the names in `without`, a list that ends with NULL (NULL: none). Returns their number. */
size_t cli_train_options(const lk_option *own, size_t n_own, const char *const *without, lk_option *table);

/* Refuses strategies that need several processes: only `lockstep train` supports them. Returns 0, or the exit status
 * with the error printed. */
int cli_check_one_process(const lk_train_config *config);

/* Interrupts a trainer. It is passed to cli_catch_interrupts. */
void cli_interrupt_trainer(void *trainer);

/* Switches off records, printing and checkpoints that a recipe may ask for. */
void cli_leave_out_records(lk_train_config *config);
