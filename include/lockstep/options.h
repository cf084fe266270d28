/* Option tables. One table describes the options of a command: flags, environment variables, defaults, ranges, help,
 * and which of them identify a run. Values live in a struct of the caller's, at the offsets of the table.
 *
 *     typedef struct settings { int64_t epochs; } settings;
 *     static const lk_option table[] = {{.name = "epochs", .type = LK_OPTION_INT64, .default_text = "10",
 *                                        .offset = offsetof(settings, epochs), .minimum = 1, .maximum = 1000,
 *                                        .value = "N", .help = "passes over the training set"}};
 *     settings s;
 *     lk_options_defaults(table, 1, &s);
 *     lk_options_parse(table, 1, argc - 1, argv + 1, &s, NULL); */
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
    LK_OPTION_STRING, /* const char *; NULL: not set */
    LK_OPTION_CHOICE  /* int: the position of the word in `choices` */
} lk_option_type;

typedef struct lk_option {
    const char *name; /* "batch-size": --batch-size on the command line */
    lk_option_type type;
    size_t offset;            /* of the value in the config struct */
    const char *environment;  /* variable that replaces the default; NULL: none */
    const char *default_text; /* NULL: zero. The default of a number may be outside its range, for "not set" */
    /* The range, with both ends; two zeros: any value. */
    int64_t minimum, maximum;   /* of LK_OPTION_INT64 */
    double least, greatest;     /* of LK_OPTION_DOUBLE */
    const char *const *choices; /* of LK_OPTION_CHOICE: the words, then NULL */
    const char *value;          /* name of the value in help: "N", "DIR" */
    const char *help;           /* one sentence without a full stop */
    bool recorded;              /* one of the settings that identify a run */
    const char *group;          /* heading above it in help; NULL: none */
} lk_option;

/* The greatest double below 1, as the end of a range without 1. */
#define LK_BELOW_ONE 0x1.fffffffffffffp-1

/* All functions fail with LK_ERR_ARGUMENT if a text is not a value of its option; the message names the option, the
 * text and what would be right. String values point to where they come from (argv, the environment, the table): nothing
 * is copied or allocated. config: the struct that offsets refer to. */

/* Sets every value to its default, or to its environment variable if that is set and not empty. */
LK_API lk_status lk_options_defaults(const lk_option *options, size_t count, void *config);

/* Sets one value by the option's name, as `--name text` would; for a flag `text` is "true" or "false". */
LK_API lk_status lk_options_set(const lk_option *options, size_t count, void *config, const char *name,
                                const char *text);

/* Sets values from argv[0] … argv[argc - 1], without a program name: `--name value`, `--name=value`, `--flag`,
 * `--no-flag`. The last of several wins, and `--` ends the options. Other arguments are moved, in order, to the front
 * of argv and counted in *positionals; positionals NULL: they are an error. After an error `config` has the values set
 * before it. */
LK_API lk_status lk_options_parse(const lk_option *options, size_t count, int argc, char **argv, void *config,
                                  int *positionals);

/* Writes the value to text[0 … size) as lk_options_set would read it back, but for a NULL string, which is written as
 * "". A double has the fewest digits that keep its value. Errors: LK_ERR_ARGUMENT (it does not fit, or is none
 * of the choices). */
LK_API lk_status lk_options_text(const lk_option *option, const void *config, char *text, size_t size);

/* Writes the help of an option to text[0 … size): its sentence, range, default and variable. Errors: LK_ERR_ARGUMENT
 * (it does not fit; the part that fits is written). */
LK_API lk_status lk_option_describe(const lk_option *option, char *text, size_t size);

/* The heading to print above options[index]: its group, unless the option before has the same; NULL: none. */
LK_API const char *lk_option_heading(const lk_option *options, size_t index);

/* Prints the help of all options, a paragraph each, with the headings of their groups. */
LK_API void lk_options_help(const lk_option *options, size_t count, FILE *stream);

/* The known word that is nearest to a misspelled one: that with the fewest letters changed, left out, added or swapped
 * with a neighbor (optimal string alignment distance), at most a third of the letters of the shorter word, rounded up;
 * of equals the first. NULL: none is near. rows: an array of `count` words, or of structs of `row_size` bytes that
 * begin with their word. */
LK_API const char *lk_nearest_word(const char *word, const void *rows, size_t count, size_t row_size);

#ifdef __cplusplus
}
#endif

#endif
