/* Words and paths that may follow an option or stand for an argument, for the completion of command lines. */
#pragma once

#include "cli/cli.h"

typedef enum cli_paths { CLI_NO_PATHS, CLI_FOLDERS, CLI_FILES, CLI_PATHS_COUNT } cli_paths; /* files: folders too */

typedef struct cli_completion {
    char words[2048]; /* separated by spaces */
    cli_paths paths;
} cli_completion;

cli_completion cli_complete_value(const lk_option *option);
cli_completion cli_complete_argument(const cli_command *command);
