/* Option tables: one table gives the flags of a command, their environment variables, defaults, ranges and help, and
 * says which of them are recorded with a result. The values live in a struct of the caller's, at the offsets of the
 * table. */
#ifndef LOCKSTEP_OPTIONS_H
#define LOCKSTEP_OPTIONS_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_option_type {
    LK_OPTION_FLAG,   /* bool: --name, --no-name */
    LK_OPTION_INT64,  /* int64_t, decimal */
    LK_OPTION_DOUBLE, /* double, finite; a decimal point in any locale */
    LK_OPTION_STRING, /* const char *, NULL where unset */
    LK_OPTION_CHOICE  /* int: the position of the given word in `choices` */
} lk_option_type;

typedef struct lk_option {
    const char *name; /* "batch-size": --batch-size on the command line */
    lk_option_type type;
    size_t offset;            /* of the value in the config struct */
    const char *environment;  /* variable read where the command line says nothing; NULL: none */
    const char *default_text; /* NULL: the value starts as zero. A number may start outside its range: "unset" */
    /* The range, both ends included; two zeros: any value. */
    int64_t minimum, maximum;   /* of LK_OPTION_INT64 */
    double least, greatest;     /* of LK_OPTION_DOUBLE */
    const char *const *choices; /* of LK_OPTION_CHOICE: the words, then NULL */
    const char *value;          /* what help calls the value: "N", "DIR" */
    const char *help;           /* one sentence without its full stop */
    bool recorded;              /* belongs to what identifies a run */
} lk_option;

/* The greatest double below 1: the end of a range that leaves 1 out. */
#define LK_BELOW_ONE 0x1.fffffffffffffp-1

/* All functions set LK_ERR_ARGUMENT where a text is not a value of its option; the message names the option, the text
 * and what would be right. String values point into what was given (argv, the environment, the table): nothing is
 * copied or allocated. `config` is the struct that the offsets refer to. */

/* Sets every value to its default, then to its environment variable where that is set and not empty. */
LK_API lk_status lk_options_defaults(const lk_option *options, size_t count, void *config);

/* Sets one value by the option's name, as `--name text` would; for a flag `text` is "true" or "false". */
LK_API lk_status lk_options_set(const lk_option *options, size_t count, void *config, const char *name,
                                const char *text);

/* Sets values from argv[0] … argv[argc - 1], which hold no program name: `--name value`, `--name=value`, `--flag`,
 * `--no-flag`; the last of several wins, and `--` ends the options. Other arguments are moved, in order, to the front
 * of argv and counted in *positionals; where `positionals` is NULL they are an error. After an error `config` holds
 * what was set before it. */
LK_API lk_status lk_options_parse(const lk_option *options, size_t count, int argc, char **argv, void *config,
                                  int *positionals);

/* Writes the value as a text that lk_options_set reads back to the same value: a NULL string is "", a double is the
 * shortest that does. LK_ERR_ARGUMENT when `size` bytes do not hold it and its end. */
LK_API lk_status lk_options_text(const lk_option *option, const void *config, char *text, size_t size);

/* Writes what help says of an option: its sentence, range, default and variable. LK_ERR_ARGUMENT when `size` bytes do
 * not hold it and its end; what fits is there. */
LK_API lk_status lk_option_describe(const lk_option *option, char *text, size_t size);

/* Prints the table's part of a command's help: a paragraph for each option with range, default and variable. */
LK_API void lk_options_help(const lk_option *options, size_t count, FILE *stream);

/* The word that `word` was probably meant to be, or NULL: the one with the fewest letters changed, left out, added or
 * swapped with a neighbour (optimal string alignment distance), at most a third of the letters of `word`, rounded up;
 * of equals the first. `rows` is an array of `count` words, or of structs of `row_size` bytes that start with their
 * word. */
LK_API const char *lk_nearest_word(const char *word, const void *rows, size_t count, size_t row_size);

#ifdef __cplusplus
}
#endif

#endif
