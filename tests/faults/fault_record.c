#include "fault_record.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *root; /* NULL: nothing is recorded */
static int log_file = -1;

static void record_open(void)
{
    const char *path = getenv("LOCKSTEP_FAULT_LOG"), *folder = getenv("LOCKSTEP_FAULT_ROOT");
    if (!path || !folder)
        return;
    log_file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log_file < 0)
        _exit(99);
    root = folder;
}

bool fault_record_lock(void)
{
    pthread_once(&once, record_open);
    if (root)
        pthread_mutex_lock(&mutex);
    return root != NULL;
}

void fault_record_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

/* A log that is not whole would make the test pass without a reason. */
static void record_put(const void *data, size_t size)
{
    if (syscall(SYS_write, log_file, data, size) != (long)size)
        _exit(99);
}

/* Returns the path relative to the root; NULL: it is outside. */
static const char *record_relative(const char *path, char made[PATH_MAX])
{
    size_t length = strlen(root);
    if (*path != '/') {
        if (!getcwd(made, PATH_MAX / 2))
            return NULL;
        size_t used = strlen(made);
        snprintf(made + used, PATH_MAX - used, "/%s", path);
        path = made;
    }
    if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    path += length;
    path += strspn(path, "/");
    return *path ? path : ".";
}

/* A file that was removed keeps its old name with " (deleted)" behind it, and is outside. */
static const char *record_of_descriptor(int fd, char made[PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, made, PATH_MAX - 1);
    if (size <= 0)
        return NULL;
    made[size] = '\0';
    return strchr(made, ' ') ? NULL : record_relative(made, NULL);
}

void fault_record(const char *change, const char *path, const char *to)
{
    char made[PATH_MAX], made_to[PATH_MAX], line[2 * PATH_MAX + 32];
    const char *relative = record_relative(path, made), *relative_to = to ? record_relative(to, made_to) : "";
    if (relative && relative_to)
        record_put(line,
                   (size_t)snprintf(line, sizeof line, "%s %s%s%s\n", change, relative, to ? " " : "", relative_to));
}

void fault_record_truncate(int fd, long size)
{
    char made[PATH_MAX], line[PATH_MAX + 64];
    const char *relative = record_of_descriptor(fd, made);
    if (relative)
        record_put(line, (size_t)snprintf(line, sizeof line, "truncate %s %ld\n", relative, size));
}

void fault_record_write(int fd, const void *data, size_t size, long offset)
{
    char made[PATH_MAX], line[PATH_MAX + 64];
    const char *relative = record_of_descriptor(fd, made);
    if (!relative)
        return;
    record_put(line, (size_t)snprintf(line, sizeof line, "write %s %ld %zu\n", relative, offset, size));
    record_put(data, size);
}

void fault_record_sync(int fd)
{
    char made[PATH_MAX], line[PATH_MAX + 64];
    const char *relative = record_of_descriptor(fd, made);
    if (relative)
        record_put(line, (size_t)snprintf(line, sizeof line, "sync %s\n", relative));
}
