/* What may come after an option, or in the place of an argument: for completion of command lines. */
#ifndef LK_CLI_COMPLETION_H
#define LK_CLI_COMPLETION_H

#include "cli.h"

typedef enum cli_places { CLI_NO_PLACES, CLI_FOLDERS, CLI_FILES, CLI_PLACES_COUNT } cli_places; /* files: folders too */

typedef struct cli_completion {
    char words[2048]; /* with a space between them */
    cli_places places;
} cli_completion;

cli_completion cli_complete_value(const lk_option *option);
cli_completion cli_complete_argument(const cli_command *command);

#endif
