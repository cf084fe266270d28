/* What the launcher knows of the ranks that it has started, and what they write. */
#ifndef LK_CLI_LAUNCH_RANKS_H
#define LK_CLI_LAUNCH_RANKS_H

#include "rank_output.h"
#include "rank_record.h"

typedef struct cli_ranks cli_ranks;

/* names: what each is called; NULL: rank i. log_dir: where what a rank writes to standard error is kept, as rank-i.log
 * or NAME.log, below what is there where it goes_on; NULL: nowhere. NULL, with the error printed, where that cannot be.
 */
cli_ranks *cli_ranks_new(int n, const char (*names)[CLI_RANK_NAME], const char *log_dir, bool goes_on);
void cli_ranks_release(cli_ranks *ranks); /* NULL is fine; prints what has no line's end yet */

/* Prints what rank 0 writes to standard output there, and all else to standard error, lines with the rank's number in
 * front. */
void cli_ranks_take(cli_ranks *ranks, const cli_record *record);

/* So many seconds have gone by, of which at most one counts: the launcher may have been kept from reading. */
void cli_ranks_age(cli_ranks *ranks, double seconds);

/* How likely it is that a rank that has ended as it should not have is the cause of all. */
typedef enum cli_failure {
    CLI_NO_FAILURE,
    CLI_FAILURE_FOLLOWS, /* it says that another one has given up */
    CLI_FAILURE_ERROR,   /* it may be an echo of another one's end */
    CLI_FAILURE_SIGNAL   /* it was not able to say why */
} cli_failure;

/* Of the likeliest one. */
cli_failure cli_ranks_failure(const cli_ranks *ranks);

/* Whether a rank does not go on for `seconds`, and not because it waits for another one that does; or, with `all`, none
 * of them goes on. Which one that is is remembered. */
bool cli_ranks_any_stalled(cli_ranks *ranks, double seconds, bool all);

/* Those whose supervisor has been heard of. */
int cli_ranks_count_there(const cli_ranks *ranks);

bool cli_ranks_all_ended(const cli_ranks *ranks);

/* --- where ranks may come and go ---------------------------------------------------------------------------------- */

/* The next one that has ended and was not given before; -1: there is none. Others than rank 0 that have ended by an
 * error are given after `patience` seconds: that may be an echo of rank 0's end. */
int cli_ranks_next_ended(cli_ranks *ranks, double patience);

bool cli_ranks_has_failed(const cli_ranks *ranks, int rank);
bool cli_ranks_none_left(const cli_ranks *ranks, int first); /* of those from there on */

/* Whether it stands still for its own part, which is then what cli_ranks_print_stalled says. */
bool cli_ranks_is_stopped(cli_ranks *ranks, int rank);

/* Its supervisor has ended so, and the rank with it; unless how the rank ended is known. */
void cli_ranks_lose(cli_ranks *ranks, int rank, bool by_signal, int number);

/* It was started once more. */
void cli_ranks_begin_again(cli_ranks *ranks, int rank);

/* It is the one that failed, whoever did so first. */
void cli_ranks_blame(cli_ranks *ranks, int rank);

/* Prints the line that says how it ended. */
void cli_ranks_print_end(cli_ranks *ranks, int rank);

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The exit status of a run in which no rank failed: 130 where one was interrupted, else 0. */
int cli_ranks_status(const cli_ranks *ranks);

/* Prints the line that says which rank failed, and gives the exit status that belongs to it: the rank's own, or 1. */
int cli_ranks_print_failed(cli_ranks *ranks);

/* The same of a rank that does not go on. */
int cli_ranks_print_stalled(cli_ranks *ranks);

#endif
