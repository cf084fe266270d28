/* A job: processes that train together, each supervised by a `lockstep rank`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_job_opts {
    int ranks;                /* all processes */
    bool on_several_machines; /* mpirun starts the ranks; else the launcher does */
    const char *hosts;        /* "a:2,b:2"; NULL: this machine, or those that a scheduler has granted */
    const char *interfaces;   /* names or networks, "eth0,10.1.0.0/16", that mpirun may use; NULL: it chooses */
    /* For strategy parameter-server on this machine: the ranks are a chief, these servers and these
     * workers. 0: the strategy is multi-worker. */
    int servers, workers;
    bool restarts_servers; /* restart servers that were killed */
    double stall_timeout;  /* seconds without progress before the job is ended; 0: no limit */
    const char *log_dir;   /* NULL: none */
    char *const *command;  /* "train", its arguments, NULL */
    int max_restarts;      /* times that all ranks may restart after one died, failed or stalled */
    char *const *again;    /* the command for these restarts, which resumes from a checkpoint */
    /* For an elastic training, both with `elastic`; NULL: it is none. wants_stop, called once a second: true has all
     * ranks end after their step. is_writing: true delays the end of the survivors of a failure, for some seconds. */
    bool (*wants_stop)(void *elastic);
    bool (*is_writing)(void *elastic);
    void *elastic;
} cli_job_opts;

/* How a job ended. */
typedef struct cli_job_end {
    int status;          /* exit status */
    bool is_interrupted; /* by the user */
    bool was_stopped;    /* because of wants_stop */
    bool has_stalled;    /* no rank made progress */
    bool may_again;      /* a restart may help */
    int lost, left;      /* numbers of ranks that were killed or stalled, and that were asked to leave */
    bool *is_gone;       /* [ranks], of the caller: the rank is one of these */
    int64_t step;        /* the furthest step that a rank is known to have been in */
    char last[1024];     /* what was printed about the rank that caused the end; "": nothing */
} cli_job_end;

/* Runs the job, passes on its output and prints errors. Returns the exit status after all processes have ended. */
int cli_job_run(const cli_job_opts *opts);

/* The same, without restarts. is_again: append to logs. */
void cli_job_run_once(const cli_job_opts *opts, bool is_again, cli_job_end *end);
