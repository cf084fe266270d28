#include "cli/launch/mpi_leftovers.h"

#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The component vader of Open MPI 4 names its files vader_segment.HOST.USER.JOB.RANK: the job in hexadecimal, and the
 * rank as counted on its machine. */
void cli_remove_mpi_memory(bool of_all_ranks)
{
    char pattern[512];
    glob_t found;
    const char *job = getenv("PMIX_NAMESPACE"), *rank = getenv("OMPI_COMM_WORLD_LOCAL_RANK"),
               *folder = getenv("OMPI_MCA_btl_vader_backing_directory");
    char *end = NULL;
    unsigned long number = job ? strtoul(job, &end, 10) : 0;
    if (!rank || number == 0 || number > UINT32_MAX || *end)
        return;
    int length = snprintf(pattern, sizeof pattern, "%s/vader_segment.*.%u.%lx.%s", folder ? folder : "/dev/shm",
                          (unsigned)geteuid(), number, of_all_ranks ? "*" : rank);
    if (length >= (int)sizeof pattern || glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}
