/* Interrupts (SIGINT, SIGTERM): the first asks the current work to end; a second, or one without current work, ends the
 * process at once with status 130. */
#pragma once

#include <stdbool.h>

/* Begins to catch them. The signal handler calls `end_work` with the work that cli_set_work was given; NULL: for
 * commands that never set work. */
void cli_catch_interrupts(void (*end_work)(void *work));

/* Sets the current work; NULL: none. On return the previous work may be freed. If an interrupt came since the last
 * cli_is_interrupted, the new work is ended. */
void cli_set_work(void *work);

/* Returns whether an interrupt has come. After the first call an interrupt ends nothing, until cli_set_work or
 * cli_stop_asking: the caller must keep asking and end its work itself. */
bool cli_is_interrupted(void);

/* The caller will not ask again: from now on interrupts end the process, and so does one since it last asked. */
void cli_stop_asking(void);
