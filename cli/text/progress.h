/* Shows training on stderr: the plan, a bar redrawn on a terminal, and a line per epoch. */
#pragma once

#include "lockstep/log.h"
#include "lockstep/train.h"

#include <stdio.h>

typedef struct cli_progress {
    bool ledger;         /* print the ledger after every epoch */
    bool verbose;        /* end with all that is known of the run's speed */
    const lk_plan *plan; /* set when training begins */
    bool announced;      /* the plan has been printed */
    bool has_warned;     /* so has the line about a network that guesses */
} cli_progress;

/* Adds callbacks that print the plan before the first epoch, the bar and the epochs' lines. `progress` is borrowed. */
lk_status cli_progress_add(cli_progress *progress, lk_trainer *trainer);

/* Prints the last lines of a training that ended without an error. */
void cli_progress_done(const cli_progress *progress, const lk_trainer *trainer, const lk_train_result *result);

/* Returns the columns of the terminal that `stream` is, or INT_MAX if it is none. */
int cli_columns(FILE *stream);

/* Prints `before` and `text` as a line, without control characters. On a terminal a line that is too long is broken
 * between words of the text, and its rest is indented by as many columns as `before` has. */
void cli_print_wrapped(const char *before, const char *text, FILE *stream);

/* Prints `before` and the formatted text in the same way. */
void cli_printf_wrapped(FILE *stream, const char *before, const char *format, ...) LK_PRINTF(3, 4);

/* Returns whether stderr is a terminal with escape sequences, so that a line can be drawn in place. */
bool cli_can_redraw(void);

/* Begins or ends bold type, if stderr is a terminal that has it and $NO_COLOR is not set. */
void cli_set_bold(bool is_bold);

/* Clears the current line if cli_can_redraw(). */
void cli_clear_line(void);

/* Reports that data "auto" fell back to synthetic images. */
void cli_note_fallback(void);

/* Prints messages of the library as "warning: …" or "note: …"; for lk_log_set. */
void cli_print_log(void *user, lk_log_level level, const char *message);

/* Prints each message once: trainers made one after another open devices and data again and would repeat them. */
void cli_print_log_once(void *user, lk_log_level level, const char *message);
