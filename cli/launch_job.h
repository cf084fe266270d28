/* A job: processes that mpirun starts, each below a `lockstep rank` that supervises it. */
#ifndef LK_CLI_LAUNCH_JOB_H
#define LK_CLI_LAUNCH_JOB_H

#include <stdint.h>

typedef struct cli_job_opts {
    int ranks;
    const char *hosts;    /* "a:2,b:2"; NULL: this machine */
    double stall_timeout; /* seconds; 0: for ever */
    const char *log_dir;  /* NULL: none */
    char *const *command; /* "train", its arguments, NULL */
} cli_job_opts;

/* Starts the job, passes on what it writes, and gives its exit status when all of it has ended, with what went wrong
 * printed. */
int cli_job_run(const cli_job_opts *opts);

#endif
