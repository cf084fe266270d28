/* Words and paths that may follow an option or be an argument, for shell completion. */
#pragma once

#include "cli/cli.h"

typedef enum cli_paths { CLI_NO_PATHS, CLI_FOLDERS, CLI_FILES, CLI_PATHS_COUNT } cli_paths; /* files include folders */

typedef struct cli_completion {
    char words[2048]; /* separated by spaces */
    cli_paths paths;
} cli_completion;

cli_completion cli_complete_value(const lk_option *option);
cli_completion cli_complete_argument(const cli_command *command);
