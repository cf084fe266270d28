/* Starts the processes of a job on this machine: ranks that exchange messages through shared memory, or those of a
 * parameter-server training. */
#pragma once

#include "cli/launch/launch_job.h"

#include <sys/types.h>

/* The address at which the processes of a parameter-server training meet. */
typedef struct cli_meeting {
    int socket; /* reserves the port, so that no other process gets it; -1: none */
    char address[32];
} cli_meeting;

/* Chooses a free port of the loopback interface for the chief. Returns false, with the error printed, on failure. */
bool cli_meeting_open(cli_meeting *meeting);
void cli_meeting_close(cli_meeting *meeting);

/* Writes the name of a rank: "chief", "ps-0", "worker-1". The chief is rank 0; servers come before workers. */
void cli_role_name(const cli_job_opts *opts, int rank, char *name, size_t size);
bool cli_role_is_server(const cli_job_opts *opts, int rank);

/* Starts the supervisor of a rank, which writes its records to `output`. memory: from lk_processes_share; -1 for a
 * parameter-server training. Returns -1, with the error printed, on failure. */
pid_t cli_role_start(const cli_job_opts *opts, const cli_meeting *meeting, int memory, int rank, int output);
