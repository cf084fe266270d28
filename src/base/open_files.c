#include "base/status.h"
#include "lockstep/dist.h"

#include <fcntl.h>
#include <sys/resource.h>

/* Looks at one descriptor after the other, because reading /proc/self/fd takes a descriptor too. */
lk_status lk_check_open_files(const char *what, int files)
{
    struct rlimit limit;
    int free = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return LK_OK;
    for (rlim_t fd = 0; fd < limit.rlim_cur && free < files; fd++)
        free += fcntl((int)fd, F_GETFD) < 0;
    if (free < files)
        LK_FAIL(LK_ERR_IO,
                "%s: has to open %d more file%s, and %d of the %llu that a process may open are free; raise "
                "that limit (ulimit -n)",
                what, files, files == 1 ? "" : "s", free, (unsigned long long)limit.rlim_cur);
    return LK_OK;
}
