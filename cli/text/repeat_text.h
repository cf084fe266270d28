/* Command lines for the reader: the one that repeats a run, and their words. */
#pragma once

#include "lockstep/runs.h"

#include <stdio.h>

/* Gives `lockstep train` with model, data and every recorded option of the run that differs from its default, quoted
 * for a shell; with all of them if a recipe was used, whose settings may be other than the defaults. Free it with free.
 * NULL: no command repeats the run (lk_run.repeatable), a setting was no UTF-8, or memory ran out. */
char *cli_repeat_command(const lk_run *run);

/* Writes a word of a command, quoted unless it has only characters that no shell treats specially. */
void cli_put_word(FILE *out, const char *word);
