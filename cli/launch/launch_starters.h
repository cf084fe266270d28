/* The processes that a launcher has started and reads from: the ranks' supervisors, or mpirun, which starts them on
 * several machines. */
#pragma once

#include "cli/launch/launch_job.h"
#include "cli/launch/rank_record.h"

typedef struct cli_starters cli_starters;

typedef struct cli_starters_events {
    void *user;
    void (*on_record)(void *user, const cli_record *record);
    void (*on_text)(void *user, const char *text, size_t bytes); /* mpirun's own output */
    /* The supervisor of a rank has ended and its output was passed on. Not called with mpirun. */
    void (*on_ended)(void *user, int rank, int status);
} cli_starters_events;

/* Returns NULL if memory ran out. opts and events must outlive the starters. */
cli_starters *cli_starters_new(const cli_job_opts *opts, const cli_starters_events *events);
void cli_starters_release(cli_starters *starters); /* NULL is fine; all processes must have ended */

/* Starts all processes. Returns false, with the error printed, if one could not be started; those already started
 * continue. */
bool cli_starters_start(cli_starters *starters);
bool cli_starters_start_again(cli_starters *starters, int rank);

/* Passes on output that has arrived. Waits for it at most this many milliseconds. */
void cli_starters_listen(cli_starters *starters, int milliseconds);

/* Returns whether more output can arrive. None can once all processes have ended. In a parameter-server training it
 * stays true, because servers may be restarted. */
bool cli_starters_output_is_open(const cli_starters *starters);

/* Reaps processes that have ended, and calls on_ended for each supervisor. */
void cli_starters_reap(cli_starters *starters);

void cli_starters_signal_all(const cli_starters *starters, int signal);

/* Passes an interrupt on to all ranks or, in a parameter-server training, to the chief alone. */
void cli_starters_interrupt(const cli_starters *starters);

/* Kills a rank's supervisor, and with it the rank. */
void cli_starters_kill(const cli_starters *starters, int rank);

/* Ends all remaining processes and returns mpirun's wait status. */
int cli_starters_end(cli_starters *starters);
