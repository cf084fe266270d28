#include "cli/launch/mpi_leftovers.h"

#include "cli/launch/remove_tree.h"

#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

/* Where Open MPI keeps temporary files. */
static const char *mpi_temporary_folder(void)
{
    static const char *const names[] = {"OMPI_MCA_orte_local_tmpdir_base", "OMPI_MCA_orte_tmpdir_base", "TMPDIR",
                                        "TEMP", "TMP"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return getenv(names[i]);
    return "/tmp";
}

/* Returns whether nobody else can put anything into the folder. */
static bool mpi_folder_is_own(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
           !(about.st_mode & (S_IWGRP | S_IWOTH));
}

/* The folder of Open MPI 4 is ompi.HOST.USER/pid.PROCESS. ompi.HOST.USER is for all jobs of the user. */
void cli_remove_mpi_session(pid_t mpirun)
{
    char pattern[512], session[600];
    glob_t found;
    int length = snprintf(pattern, sizeof pattern, "%s/ompi.*.%u", mpi_temporary_folder(), (unsigned)geteuid());
    if (length >= (int)sizeof pattern || glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        length = snprintf(session, sizeof session, "%s/pid.%ld", found.gl_pathv[i], (long)mpirun);
        if (length >= (int)sizeof session || !mpi_folder_is_own(found.gl_pathv[i]) || !mpi_folder_is_own(session))
            continue;
        cli_remove_tree(session);
        rmdir(found.gl_pathv[i]); /* unless another job has its files there */
    }
    globfree(&found);
}
