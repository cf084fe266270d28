/* Declarations that all commands share. A file cmd_NAME.c holds one command and exports its cli_command.
 *
 * A command prints its results to stdout and everything else to stderr. Its exit status is 0 for success, 2 for an
 * invalid command line (LK_ERR_ARGUMENT), 130 after an interrupt (LK_ERR_INTERRUPTED), and 1 for any other error. */
#pragma once

#include "lockstep/options.h"

#include <stdio.h>

enum { CLI_MAX_OPTIONS = 112 };

typedef struct cli_command {
    const char *name;
    const char *summary;   /* one line without a full stop */
    const char *arguments; /* arguments after the options, for the usage line: "[COMMAND]"; NULL: none are allowed */
    const char *examples;  /* command lines above the options in help, each begins with two spaces; NULL: none */
    const char *details;   /* paragraphs below the options in help; every line ends in a newline; NULL: none */
    const lk_option *options;
    size_t option_count;
    /* Used instead of `options` by commands that also take options of another table. Fills `table`, which holds
     * CLI_MAX_OPTIONS, and returns their number. */
    size_t (*make_options)(lk_option *table);
    size_t config_size; /* size of the struct that offsets refer to, if other commands parse the options too */
    bool is_internal;   /* started by other commands or the build only; help does not list it */
    /* Takes the arguments after the command's name and returns the exit status. */
    int (*run)(int argc, char **argv);
} cli_command;

#define CLI_COMMAND(name) extern const cli_command cmd_##name;
#include "cli/commands.def"
#undef CLI_COMMAND

/* Sets `config` from defaults, then environment, then command line. Arguments that are not options are moved to the
 * front of argv and counted in *positionals; they are an error if `positionals` is NULL. See lk_options_parse. */
lk_status cli_parse(const cli_command *command, int argc, char **argv, void *config, int *positionals);

/* Prints a text that may come from outside. Replaces control characters, which could control the terminal, with '?'. */
void cli_print_clean(const char *text, FILE *stream);

/* Returns the columns that a UTF-8 text takes in a terminal, counting one per character. */
int cli_text_width(const char *text);

/* Prints a text to standard output as cli_print_clean does, then spaces up to `width` columns. */
void cli_print_padded(const char *text, int width);

/* Prints `json` as a line and frees it with lk_free. If it is NULL, returns the error of the call that should have made
 * it. */
lk_status cli_print_json(char *json, FILE *stream);

/* Prints that memory ran out and returns LK_ERR_MEMORY, without setting the thread's error. */
lk_status cli_out_of_memory(void);

/* Prints "lockstep: " and the thread's error as one line to stderr. Returns its exit status. */
int cli_fail(void);

/* Prints "lockstep: " and the formatted text as one line to stderr, and returns 2. */
int cli_usage_error(const char *format, ...) LK_PRINTF(1, 2);

/* Prints the same and returns 1, for an error that is not in the command line. */
int cli_error(const char *format, ...) LK_PRINTF(1, 2);

/* Prints "lockstep: PATH: cannot be written: …" with the text of `error`, a value of errno, and returns 1. */
int cli_cannot_write(const char *path, int error);

/* Checks that the file of an option can be written, before time is spent on its contents. An existing file stays as it
 * is, and none is made. Returns 0, or 1 with the error printed. */
int cli_check_file(const char *option, const char *path);

/* Returns the command called `name`, or NULL with the error printed. */
const cli_command *cli_find_command(const char *name);

/* Returns command `index` of those that help lists, in its order, or NULL past the last. */
const cli_command *cli_listed_command(size_t index);

/* Returns the options of a command: its own table, or `made`, which holds CLI_MAX_OPTIONS and is then filled by its
 * make_options. Those of a group are next to each other. */
const lk_option *cli_options_of(const cli_command *command, lk_option *made, size_t *count);

void cli_print_overview(FILE *stream);
void cli_print_help(const cli_command *command, FILE *stream);

/* Returns whether --help or -h is among the arguments before "--". */
bool cli_asks_for_help(int argc, char **argv);
