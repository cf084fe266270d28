/* Files that Open MPI leaves on a machine if its processes are killed. */
#pragma once

#include <stdbool.h>

/* Removes the shared memory of this process's rank, or of all the job's ranks on this machine; the environment, which
 * mpirun has set, says which. Does nothing in a process that mpirun has not started. */
void cli_remove_mpi_memory(bool of_all_ranks);
