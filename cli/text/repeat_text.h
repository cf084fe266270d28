/* The command line that repeats a run. */
#pragma once

#include "lockstep/runs.h"

/* Gives `lockstep train` with model, data and every recorded option of the run that differs from its default, quoted
 * for a shell; with all of them if a recipe was used, whose settings may be other than the defaults. Free it with free.
 * NULL: no settings were recorded, or memory ran out. */
char *cli_repeat_command(const lk_run *run);
