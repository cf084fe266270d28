/* What the files of the command share. A file cmd_NAME.c holds one command and exports one symbol, its cli_command.
 *
 * What a command was asked for goes to stdout, all else to stderr. Exit status: 0; 2 for a command line that makes no
 * sense (LK_ERR_ARGUMENT); 130 when interrupted (LK_ERR_INTERRUPTED); 1 for everything else. */
#ifndef LK_CLI_H
#define LK_CLI_H

#include "lockstep/options.h"

#include <stdio.h>

enum { CLI_MAX_OPTIONS = 96 };

typedef struct cli_command {
    const char *name;
    const char *summary;   /* one line without its full stop */
    const char *arguments; /* what follows the options in the usage line: "[COMMAND]"; NULL: nothing may */
    const char *details;   /* paragraphs below the options in help, each line with its end; NULL: none */
    const lk_option *options;
    size_t option_count;
    /* Instead of `options`: fills `table`, of CLI_MAX_OPTIONS, and gives how many there are. For a command that takes
     * options of another table. */
    size_t (*make_options)(lk_option *table);
    size_t config_size; /* of the struct that their offsets refer to, where others parse them too */
    bool is_internal;   /* the project's own commands start it: not listed in help */
    /* Gets what follows the command's name and gives the exit status. */
    int (*run)(int argc, char **argv);
} cli_command;

#define CLI_COMMAND(name) extern const cli_command cmd_##name;
#include "commands.def"
#undef CLI_COMMAND

/* Defaults, then environment, then command line. Arguments that are no options are an error where `positionals` is
 * NULL; otherwise lk_options_parse says where they are. */
lk_status cli_parse(const cli_command *command, int argc, char **argv, void *config, int *positionals);

/* Prints a text that may hold names from outside: control characters, which could also speak to a terminal, as '?'. */
void cli_print_clean(const char *text, FILE *stream);

/* Columns that a text of UTF-8 takes in a terminal, each character one. */
int cli_text_width(const char *text);

/* Prints that memory did not suffice; gives LK_ERR_MEMORY, without an error of the thread's. */
lk_status cli_out_of_memory(void);

/* Prints "lockstep: " and the thread's error as one line to stderr, and gives the exit status that belongs to it. */
int cli_fail(void);

/* The same with a text of the command's own; always gives 2. */
int cli_usage_error(const char *format, ...) LK_PRINTF(1, 2);

/* Whether the file of an option can be written, before time is spent on what goes there; one that is there stays as it
 * is. 0, or what cli_fail would give, with the error printed. */
int cli_check_file(const char *option, const char *path);

/* The command of that name, or NULL with the error printed. */
const cli_command *cli_find_command(const char *name);

/* The commands that help lists, in its order; NULL past the last. */
const cli_command *cli_listed_command(size_t index);

/* The options of a command: its own table, or what it fills `made`, of CLI_MAX_OPTIONS, with. */
const lk_option *cli_options_of(const cli_command *command, lk_option *made, size_t *count);

void cli_print_overview(FILE *stream);
void cli_print_help(const cli_command *command, FILE *stream);

#endif
