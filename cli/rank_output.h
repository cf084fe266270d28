/* What a rank writes to standard error, line by line. */
#ifndef LK_CLI_RANK_OUTPUT_H
#define LK_CLI_RANK_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CLI_RANK_NAME = 24 };

typedef struct cli_rank_line cli_rank_line;

/* Zero but for the name at first. */
typedef struct cli_rank_output {
    char name[CLI_RANK_NAME]; /* "1", "worker-0": in front of each line */
    cli_rank_line *line;      /* that is not complete; NULL: it has written nothing */
    FILE *log;                /* NULL: none */
} cli_rank_output;

/* Keeps the lines in FOLDER/rank-NAME.log, or, without a title, in FOLDER/NAME.log too; goes_on: below those that are
 * there. False with the error printed.
 */
bool cli_output_open_log(cli_rank_output *output, const char *title, const char *folder, bool goes_on);

/* Prints what is complete. */
void cli_output_take(cli_rank_output *output, const char *bytes, size_t n);

/* Prints what has no line's end. */
void cli_output_flush(cli_rank_output *output);

void cli_output_close(cli_rank_output *output);

#endif
