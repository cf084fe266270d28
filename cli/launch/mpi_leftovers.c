#include "cli/launch/mpi_leftovers.h"

#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *cli_mpi_job(void)
{
    return getenv("OMPI_COMM_WORLD_LOCAL_RANK") ? getenv("PMIX_NAMESPACE") : NULL;
}

/* The component vader of Open MPI 4 names its files vader_segment.HOST.USER.JOB.RANK. JOB is in hexadecimal, and RANK
 * is the number among the job's ranks on the machine. */
void cli_remove_mpi_memory(const char *job, const char *rank)
{
    char pattern[512], *end;
    glob_t found;
    const char *folder = getenv("OMPI_MCA_btl_vader_backing_directory");
    unsigned long number = strtoul(job, &end, 10);
    if (number == 0 || number > UINT32_MAX || *end)
        return;
    int length = snprintf(pattern, sizeof pattern, "%s/vader_segment.*.%u.%lx.%s", folder ? folder : "/dev/shm",
                          (unsigned)geteuid(), number, rank);
    if (length >= (int)sizeof pattern || glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}
