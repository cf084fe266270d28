/* What a launcher has started, and hears from: mpirun, which starts the ranks' supervisors, or these themselves. */
#ifndef LK_CLI_LAUNCH_STARTERS_H
#define LK_CLI_LAUNCH_STARTERS_H

#include "launch_job.h"
#include "rank_record.h"

typedef struct cli_starters cli_starters;

typedef struct cli_starters_events {
    void *user;
    void (*on_record)(void *user, const cli_record *record);
    void (*on_text)(void *user, const char *text, size_t bytes); /* that mpirun says */
    /* The supervisor of a rank has ended, and all that it wrote was given; never of mpirun. */
    void (*on_ended)(void *user, int rank, int status);
} cli_starters_events;

/* NULL where there is no memory. What is behind the pointers has to be there for as long. */
cli_starters *cli_starters_new(const cli_job_opts *opts, const cli_starters_events *events);
void cli_starters_release(cli_starters *starters); /* NULL is fine; nothing may go on any more */

/* False, with the error printed, where not all could be started; those that were go on. */
bool cli_starters_start(cli_starters *starters);
bool cli_starters_start_again(cli_starters *starters, int rank);

/* Gives what has come; waits for it so many milliseconds at most. */
void cli_starters_listen(cli_starters *starters, int milliseconds);

/* Whether anything can come: mpirun closes what it writes to when it ends. */
bool cli_starters_are_heard(const cli_starters *starters);

/* Takes note of those that have ended. */
void cli_starters_reap(cli_starters *starters);

void cli_starters_signal_all(const cli_starters *starters, int signal);
/* mpirun, which hands it on to all, or the chief's supervisor. */
void cli_starters_signal_first(const cli_starters *starters, int signal);

/* Ends all that is left, and gives how mpirun ended, as waitpid does. */
int cli_starters_end(cli_starters *starters);

#endif
