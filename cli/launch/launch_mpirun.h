/* Starts the ranks of a job through mpirun. */
#pragma once

#include "cli/launch/launch_job.h"

#include <sys/types.h>

/* Starts mpirun, which starts all ranks. Their supervisors write records to `output`. Returns -1, with the error
 * printed, on failure. */
pid_t cli_mpirun_start(const cli_job_opts *opts, int output);

/* Returns whether mpirun's `text` says that the supervisor of a rank was killed by a signal. Sets *rank and *signal if
 * so. */
bool cli_mpirun_names_killed(const char *text, int *rank, int *signal);
