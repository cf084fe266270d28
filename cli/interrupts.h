/* Interrupts (SIGINT, SIGTERM): the first ends the work at hand in good order; a second, or one while there is no such
 * work, ends the process at once with status 130. */
#ifndef LK_CLI_INTERRUPTS_H
#define LK_CLI_INTERRUPTS_H

#include <stdbool.h>

/* Begins to catch them. `end_work` is called in the signal handler, with the work that cli_set_work was given; NULL
 * where there never is any. */
void cli_catch_interrupts(void (*end_work)(void *work));

/* NULL: there is no work. The work before may be freed when this is back. An interrupt that cli_is_interrupted was to
 * tell of ends the new work. */
void cli_set_work(void *work);

/* From the first question on the first interrupt ends nothing by itself, until cli_set_work or cli_stop_asking: who
 * asks ends what it does. */
bool cli_is_interrupted(void);

/* Where nobody asks any more an interrupt ends the process as above, and so does one that nobody has been told of. */
void cli_stop_asking(void);

#endif
