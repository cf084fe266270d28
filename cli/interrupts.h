/* Interrupts (SIGINT, SIGTERM): the first ends the work at hand in good order; a second, or one while there is no such
 * work, ends the process at once with status 130. */
#ifndef LK_CLI_INTERRUPTS_H
#define LK_CLI_INTERRUPTS_H

/* Begins to catch them. `end_work` is called in the signal handler, with the work that cli_set_work was given. */
void cli_catch_interrupts(void (*end_work)(void *work));

/* NULL: there is no work. The work before may be freed when this is back. */
void cli_set_work(void *work);

#endif
