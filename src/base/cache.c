#include "base/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool lk__cache_folder(char path[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    /* The XDG specification says to ignore relative paths. */
    if (cache && cache[0] == '/')
        length = snprintf(path, PATH_MAX, "%s/lockstep", cache);
    else if (home && *home)
        length = snprintf(path, PATH_MAX, "%s/.cache/lockstep", home);
    return length > 0 && length < PATH_MAX;
}

bool lk__make_folders(char path[PATH_MAX])
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return false;
        if (!slash)
            return true;
        *slash = '/';
    }
}

void lk__cache_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}
