/* A job: processes that train together, each supervised by a `lockstep rank`. */
#pragma once

#include <stdbool.h>

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
} cli_job_opts;

/* Runs the job, passes on its output and prints errors. Returns the exit status after all processes have ended. */
int cli_job_run(const cli_job_opts *opts);
