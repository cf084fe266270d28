/* A rank's standard error, printed line by line. On a terminal the last line may be one that the rank redraws, such as
 * a progress bar. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CLI_RANK_NAME = 24 };

typedef struct cli_rank_line cli_rank_line;

/* Zero-initialize all but the name. */
typedef struct cli_rank_output {
    char name[CLI_RANK_NAME]; /* printed before each line: "1", "worker-0" */
    cli_rank_line *line;      /* the incomplete line; NULL: nothing written yet */
    FILE *log;                /* NULL: none */
    bool log_failed;          /* it lacks lines, which was said */
} cli_rank_output;

/* Also writes the lines to FOLDER/rank-NAME.log, or to FOLDER/NAME.log if `title` is empty.
 * appends: after the lines already there. Returns false, with the error printed, on failure. */
bool cli_output_open_log(cli_rank_output *output, const char *title, const char *folder, bool appends);

/* Adds output, and prints the lines that are complete. A carriage return begins the line anew. */
void cli_output_take(cli_rank_output *output, const char *bytes, size_t n);

/* Draws the line again that the rank redraws, if there is one now. What is printed next must clear it first, with
 * cli_clear_line. */
void cli_output_draw(const cli_rank_output *output);

/* Prints an incomplete line; one that is redrawn is cleared instead. */
void cli_output_flush(cli_rank_output *output);

/* Returns whether the log, if there is one, has all lines; an error was printed otherwise. */
bool cli_output_close(cli_rank_output *output);
