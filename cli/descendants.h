/* All that a process has started, and what that has. */
#ifndef LK_CLI_DESCENDANTS_H
#define LK_CLI_DESCENDANTS_H

/* From now on what was started below this process becomes its child when its parent ends, so that nothing is lost sight
 * of. */
void cli_adopt_descendants(void);

/* Kills all that is left below this process, and waits for it; what cannot be killed is left after a minute. */
void cli_kill_descendants(void);

#endif
