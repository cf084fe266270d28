/* Files that Open MPI leaves on a machine if its processes are killed. */
#pragma once

#include <sys/types.h>

/* Returns mpirun's number of the job that this process belongs to, or NULL if mpirun has not started it. */
const char *cli_mpi_job(void);

/* Removes the shared memory of a job's rank on this machine. rank: its number among the job's ranks on this machine, or
 * "*" for all of them. */
void cli_remove_mpi_memory(const char *job, const char *rank);

/* Removes the folder with temporary files that mpirun had on this machine. mpirun: its process, which has ended. */
void cli_remove_mpi_session(pid_t mpirun);
