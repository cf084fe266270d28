/* The processes that this process has started, directly or indirectly. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* From now on a descendant whose parent ends becomes a child of this process, so that none gets lost. Call it before
 * the first child is started: children that the process has by then are not its own. */
void cli_adopt_descendants(void);

/* Prepares a child, after fork, to run a program. It gets its own process group, so that control-C reaches only the
 * launcher, and SIGTERM when `parent` ends. Its standard input and output are /dev/null, and its standard error is
 * `output`. Returns false, with errno set, on failure. */
bool cli_prepare_child(pid_t parent, int output);

/* Ends its own children and what they started, by SIGTERM and a second later SIGKILL, and waits for them. Gives up
 * after a minute on those that cannot be killed. */
void cli_kill_descendants(void);
