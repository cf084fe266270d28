/* What the launcher knows of the ranks that it has started, and what they write. */
#ifndef LK_CLI_LAUNCH_RANKS_H
#define LK_CLI_LAUNCH_RANKS_H

#include "rank_record.h"

typedef struct cli_ranks cli_ranks;

/* log_dir: where what rank i writes to standard error is kept, as rank-i.log; NULL: nowhere. NULL, with the error
 * printed, where that cannot be. */
cli_ranks *cli_ranks_new(int n, const char *log_dir);
void cli_ranks_release(cli_ranks *ranks); /* NULL is fine; prints what has no line's end yet */

/* Prints what rank 0 writes to standard output there, and all else to standard error, lines with the rank's number in
 * front. */
void cli_ranks_take(cli_ranks *ranks, const cli_record *record);

/* So many seconds have gone by, of which at most one counts: the launcher may have been kept from reading. */
void cli_ranks_age(cli_ranks *ranks, double seconds);

/* Whether a rank has ended as it should not have; *by_signal: without having been able to say why. */
bool cli_ranks_any_failed(const cli_ranks *ranks, bool *by_signal);

/* Whether a rank does not go on for `seconds`, and not because it waits for another one that does. The first time that
 * there is one is remembered. */
bool cli_ranks_any_stalled(cli_ranks *ranks, double seconds);

bool cli_ranks_all_ended(const cli_ranks *ranks);

/* The exit status of a run in which no rank failed: 130 where one was interrupted, else 0. */
int cli_ranks_status(const cli_ranks *ranks);

/* Prints the line that says which rank failed, and gives the exit status that belongs to it: the rank's own, or 1. */
int cli_ranks_print_failed(cli_ranks *ranks);

/* The same of a rank that does not go on. */
int cli_ranks_print_stalled(cli_ranks *ranks);

#endif
