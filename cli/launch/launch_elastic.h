/* An elastic job goes on without ranks that are lost or leave, and with those of machines that are added. */
#pragma once

#include "cli/launch/launch_job.h"

#include <time.h>

typedef struct cli_elastic_opts {
    int min_ranks;             /* with fewer the job ends */
    const char *hosts_file;    /* watched while the job runs; NULL: none */
    struct timespec file_time; /* when it was last changed before job->hosts were read */
    bool finds_interfaces;     /* job->interfaces are those of its hosts, and change with them */
} cli_elastic_opts;

/* Runs the job, whose restarts are not limited by max_restarts. Returns the exit status after all processes have
 * ended. */
int cli_elastic_run(const cli_job_opts *job, const cli_elastic_opts *opts);
