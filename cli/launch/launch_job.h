/* A job: processes that train together, each supervised by a `lockstep rank`. */
#pragma once

#include <stdbool.h>

typedef struct cli_job_opts {
    int ranks;                /* all processes */
    bool on_several_machines; /* mpirun starts the ranks; else the launcher does */
    const char *hosts;        /* "a:2,b:2"; NULL: this machine, or those that a scheduler has granted */
    /* With strategy parameter-server, on this machine: the ranks are a chief and these. 0: they are multi-worker's. */
    int servers, workers;
    bool restarts_servers; /* start servers that have died again */
    double stall_timeout;  /* seconds without progress before the job is ended; 0: no limit */
    const char *log_dir;   /* NULL: none */
    char *const *command;  /* "train", its arguments, NULL */
    int max_restarts;      /* how often all ranks are started again after one of them died, failed or stalled */
    char *const *again;    /* the command to start them again with, which resumes from a checkpoint */
} cli_job_opts;

/* Runs the job, passes on its output, and returns its exit status when all of it has ended. Prints what went wrong. */
int cli_job_run(const cli_job_opts *opts);
