/* Files that Open MPI leaves on a machine if its processes are killed. */
#pragma once

/* The number of the job that mpirun has started this process for; NULL: mpirun has not. */
const char *cli_mpi_job(void);

/* Removes the shared memory of a job's rank, counted on its machine, or with "*" of all its ranks on this machine. */
void cli_remove_mpi_memory(const char *job, const char *rank);
