/* Interrupts (SIGINT, SIGTERM): the first asks the current work to end; a second that is not of the
 * same request (CLI_SAME_REQUEST_MS), or one without current work, ends the process at once with
 * cli_interrupted_status. */
#pragma once

#include <stdbool.h>

/* Installs the signal handler, which calls `end_work` with the work given to cli_set_work. Commands that never set work
 * pass NULL. */
void cli_catch_interrupts(void (*end_work)(void *work));

/* Sets the current work; NULL: none. On return the previous work may be freed. If cli_is_interrupted was being asked
 * and an interrupt has come, the new work is ended. */
void cli_set_work(void *work);

/* Returns whether an interrupt has come. From this call until cli_set_work or cli_stop_asking, a
 * first interrupt does not end a process without current work: the caller must keep asking and end
 * its work itself. */
bool cli_is_interrupted(void);

/* Says that the caller will not ask again. Without current work, an interrupt that has already come ends the process
 * now, and a later one ends it when it comes. */
void cli_stop_asking(void);

/* Ignores interrupts from now on if a supervisor can still end the process. For the end of work that others wait for.
 */
void cli_ignore_interrupts(void);

/* Returns the exit status of a process that was interrupted: 130. But if SIGTERM has asked a rank of an elastic
 * training to leave, it is CLI_RANK_LEFT, and the others go on. */
int cli_interrupted_status(void);
