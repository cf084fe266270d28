/* The launcher's view of the ranks that it has started, and their output. */
#pragma once

#include "cli/launch/rank_output.h"
#include "cli/launch/rank_record.h"

typedef struct cli_ranks cli_ranks;

/* names: of the ranks; NULL: rank i. log_dir: folder for each rank's standard error, as rank-i.log or NAME.log,
 * appended to if `appends`; NULL: none. Returns NULL, with the error printed, on failure. */
cli_ranks *cli_ranks_new(int n, const char (*names)[CLI_RANK_NAME], const char *log_dir, bool appends);
void cli_ranks_release(cli_ranks *ranks); /* NULL is fine; prints incomplete lines */

/* Takes a record. Rank 0's standard output goes to standard output, all other output to standard error, each line with
 * the rank's number in front. */
void cli_ranks_take(cli_ranks *ranks, const cli_record *record);

/* Lets time pass, at most one second per call, because the launcher itself may have been stopped. */
void cli_ranks_age(cli_ranks *ranks, double seconds);

/* How a rank failed; a later one is likelier to be the cause of the others. */
typedef enum cli_failure {
    CLI_NO_FAILURE,
    CLI_FAILURE_FOLLOWS, /* it reported that another rank gave up */
    CLI_FAILURE_ERROR,   /* it may be a consequence of another rank's end */
    CLI_FAILURE_SIGNAL   /* it had no chance to say why */
} cli_failure;

/* The failure of the rank that is the likeliest cause. */
cli_failure cli_ranks_failure(const cli_ranks *ranks);

/* Returns whether some rank has made no progress for `seconds`, except while it waits for a rank that makes some. all:
 * whether that holds for every rank. Remembers the likeliest cause for cli_ranks_print_stalled. */
bool cli_ranks_any_stalled(cli_ranks *ranks, double seconds, bool all);

/* The number of ranks whose supervisor has been heard from. */
int cli_ranks_count_present(const cli_ranks *ranks);

bool cli_ranks_all_ended(const cli_ranks *ranks, int first); /* ranks first, first + 1, … */

/* --- ranks that may come and go ----------------------------------------------------------------------------------- */

/* The next rank that has ended and was not returned before; -1: none. Ranks other than 0 that ended with an error are
 * returned only after `patience` seconds, because that may be a consequence of rank 0's end. */
int cli_ranks_next_ended(cli_ranks *ranks, double patience);

bool cli_ranks_has_failed(const cli_ranks *ranks, int rank);

/* Returns whether the rank is itself stopped; if so, cli_ranks_print_stalled reports it. */
bool cli_ranks_is_stopped(cli_ranks *ranks, int rank);

/* The next rank whose supervisor has not been heard for `seconds`, and was not returned for this silence before; -1:
 * none. Prints that it is ended: the caller kills it. */
int cli_ranks_next_unheard(cli_ranks *ranks, double seconds);

/* Notes how a rank's supervisor ended, and the rank with it; ignored if the rank's own end is known. */
void cli_ranks_lose(cli_ranks *ranks, int rank, bool by_signal, int number);

/* Notes that the rank was started again. */
void cli_ranks_begin_again(cli_ranks *ranks, int rank);

/* Makes this rank the one to report as failed. */
void cli_ranks_blame(cli_ranks *ranks, int rank);

/* Prints how the rank ended, in one line. */
void cli_ranks_print_end(cli_ranks *ranks, int rank);

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The exit status if no rank failed: 130 if one was interrupted, else 0. */
int cli_ranks_status(const cli_ranks *ranks);

/* Prints which rank failed, in one line, and returns the job's exit status: the rank's own, or 1. */
int cli_ranks_print_failed(cli_ranks *ranks);

/* The same for a stalled rank. */
int cli_ranks_print_stalled(cli_ranks *ranks);
