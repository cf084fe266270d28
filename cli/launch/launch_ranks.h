/* The launcher's view of the ranks that it has started, and their output. */
#pragma once

#include "cli/launch/rank_output.h"
#include "cli/launch/rank_record.h"

typedef struct cli_ranks cli_ranks;

/* names: the ranks' names; NULL: they are numbered. log_dir: folder for each rank's standard error, in rank-i.log or
 * NAME.log; NULL: none. appends: keep what these files already hold. Returns NULL, with the error printed, on
 * failure. */
cli_ranks *cli_ranks_new(int n, const char (*names)[CLI_RANK_NAME], const char *log_dir, bool appends);
/* Prints incomplete lines. NULL is fine. Returns whether all logs could be written. */
bool cli_ranks_release(cli_ranks *ranks);

/* Handles a record. Rank 0's standard output goes to standard output. All other output goes to standard error, each
 * line with the rank's name in front. */
void cli_ranks_take(cli_ranks *ranks, const cli_record *record);

/* Advances the ranks' timers by `seconds`, but at most one per call, because the launcher itself may have been
 * stopped. */
void cli_ranks_advance_time(cli_ranks *ranks, double seconds);

/* Kinds of failure of a rank. A later kind is likelier to be the cause of the other failures. */
typedef enum cli_failure {
    CLI_NO_FAILURE,
    CLI_FAILURE_FOLLOWS, /* it reported that another rank gave up */
    CLI_FAILURE_ERROR,   /* it may be a consequence of another rank's end */
    CLI_FAILURE_SIGNAL   /* it had no chance to say why */
} cli_failure;

/* Returns the failure of the rank that is the likeliest cause. */
cli_failure cli_ranks_failure(const cli_ranks *ranks);

/* Returns whether some rank has made no progress for `seconds`. A rank that waits for one that makes progress does not
 * count. With `all`, returns whether every rank that has not ended has made none. Without are_started, ranks that have
 * not reported yet do not count: mpirun may have yet to start them. Remembers the likeliest cause for
 * cli_ranks_print_stalled. */
bool cli_ranks_any_stalled(cli_ranks *ranks, double seconds, bool all, bool are_started);

/* Returns the number of ranks whose supervisor has been heard from. */
int cli_ranks_count_present(const cli_ranks *ranks);

bool cli_ranks_all_ended(const cli_ranks *ranks, int first); /* ranks first, first + 1, … */

/* --- ranks that may come and go ----------------------------------------------------------------------------------- */

/* Returns the next rank that has ended and was not returned before, or -1. A rank other than 0 that exited with another
 * status than 0 is returned only after `patience` seconds, because that may be a consequence of rank 0's end. */
int cli_ranks_next_ended(cli_ranks *ranks, double patience);

bool cli_ranks_has_failed(const cli_ranks *ranks, int rank);

/* Returns whether the rank was interrupted, and ended properly. */
bool cli_ranks_was_interrupted(const cli_ranks *ranks, int rank);

/* Returns whether the rank ended without a decision of its own: by a signal, or with its supervisor. */
bool cli_ranks_was_killed(const cli_ranks *ranks, int rank);

/* Returns whether the rank was asked to leave, and ended after its step. */
bool cli_ranks_has_left(const cli_ranks *ranks, int rank);

/* The rank that cli_ranks_any_stalled has found; -1: none, or all wait for each other and any may be the cause. */
int cli_ranks_stalled(const cli_ranks *ranks, double seconds);

/* The furthest step that a rank is known to be in or, with of_all, the least far one. */
int64_t cli_ranks_step(const cli_ranks *ranks, bool of_all);

/* Returns whether the rank is stopped by a signal; if so, cli_ranks_print_stalled reports it. */
bool cli_ranks_is_stopped(cli_ranks *ranks, int rank);

/* Returns the next rank whose supervisor has not been heard for `seconds`, or -1. Prints that the supervisor is ended,
 * which the caller must do. The count of seconds then starts again from 0. */
int cli_ranks_next_unheard(cli_ranks *ranks, double seconds);

/* Records how a rank's supervisor ended, and the rank with it. Does nothing if the rank's own end
 * is known. number: the signal or exit status. */
void cli_ranks_note_lost(cli_ranks *ranks, int rank, bool by_signal, int number);

/* Records that the rank was restarted. */
void cli_ranks_begin_again(cli_ranks *ranks, int rank);

/* Makes this rank the one to report as failed. */
void cli_ranks_blame(cli_ranks *ranks, int rank);

/* Prints how the rank ended, in one line. */
void cli_ranks_print_end(cli_ranks *ranks, int rank);

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Returns the exit status if no rank failed: 130 if one of the first n was interrupted, else 0. */
int cli_ranks_status(const cli_ranks *ranks, int n);

/* Prints which rank failed, in one line, and returns the job's exit status: the rank's own, or 1 if a signal ended
 * it. */
int cli_ranks_print_failed(cli_ranks *ranks);

/* Prints which rank stalled, in one line, and returns the exit status, 1. */
int cli_ranks_print_stalled(cli_ranks *ranks);

/* The last line about the end of a rank that was printed; "": none was. */
const char *cli_ranks_last_line(const cli_ranks *ranks);
