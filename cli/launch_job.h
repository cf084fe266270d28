/* A job: processes that train together, each below a `lockstep rank` that supervises it. */
#ifndef LK_CLI_LAUNCH_JOB_H
#define LK_CLI_LAUNCH_JOB_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct cli_job_opts {
    int ranks;         /* all processes */
    const char *hosts; /* "a:2,b:2"; NULL: this machine */
    int servers,
        workers; /* strategy parameter-server, on this machine: with a chief these are all ranks. 0: ranks of MPI */
    bool restarts_servers; /* that have died */
    double stall_timeout;  /* seconds; 0: for ever */
    const char *log_dir;   /* NULL: none */
    char *const *command;  /* "train", its arguments, NULL */
    int max_restarts;      /* of all ranks of MPI, after one of them has died, ended by an error or not gone on */
    char *const *again;    /* with which they are then started: they go on from a checkpoint */
} cli_job_opts;

/* Starts the job, passes on what it writes, and gives its exit status when all of it has ended, with what went wrong
 * printed. */
int cli_job_run(const cli_job_opts *opts);

/* --- what starts a job -------------------------------------------------------------------------------------------- */

/* Starts mpirun, and with it all ranks, whose supervisors' records go to `output`. -1, with the error printed, where it
 * cannot be started. */
pid_t cli_mpirun_start(const cli_job_opts *opts, int output);

/* Whether mpirun says in `text` that what it started as a rank, the rank's supervisor, was ended by a signal. */
bool cli_mpirun_names_killed(const char *text, int *rank, int *signal);

/* Where the processes of a parameter-server training meet. */
typedef struct cli_meeting {
    int socket; /* has the port, so that nobody else takes it; -1: none */
    char address[32];
} cli_meeting;

/* Chooses a free port of the loopback interface for the chief. */
bool cli_meeting_open(cli_meeting *meeting);
void cli_meeting_close(cli_meeting *meeting);

/* "chief", "ps-0", "worker-1": the chief is rank 0, servers come before workers. */
void cli_role_name(const cli_job_opts *opts, int rank, char *name, size_t size);
bool cli_role_is_server(const cli_job_opts *opts, int rank);

/* Starts the supervisor of one of them. -1, with the error printed. */
pid_t cli_role_start(const cli_job_opts *opts, const cli_meeting *meeting, int rank, int output);

#endif
