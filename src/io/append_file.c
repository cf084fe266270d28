#include "io/append_file.h"

#include "base/mem.h"
#include "base/status.h"
#include "lockstep/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* A new directory is there after a power cut once its parent is on disk; file systems that cannot do that go without.
 */
static void sync_parent(const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash && slash > path ? (int)(slash - path) : 1, slash ? path : ".");
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

lk_status lk_make_directory(const char *path)
{
    char part[PATH_MAX];
    if (!path || !*path)
        LK_FAIL(LK_ERR_ARGUMENT, "a directory without a name cannot be made");
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        LK_FAIL(LK_ERR_ARGUMENT, "the directory's path has more than %d bytes: %.60s…", PATH_MAX - 1, path);
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        struct stat status;
        if (mkdir(part, 0777) != 0) {
            int error = errno;
            if (stat(part, &status) != 0)
                LK_FAIL(LK_ERR_IO, "the directory %s cannot be made: %s", part, strerror(error));
            if (!S_ISDIR(status.st_mode))
                LK_FAIL(LK_ERR_IO, "the directory %s cannot be made: there is a file of that name", part);
        } else {
            sync_parent(part);
        }
        if (!slash)
            return LK_OK;
        *slash = '/';
    }
}

static lk_status refuse(const char *path, const char *what, int error)
{
    LK_FAIL(LK_ERR_IO, "%s cannot be %s: %s", path, what, strerror(error));
}

lk_status lk__append_open(lk__append_file *file, const char *path, int flags)
{
    *file = (lk__append_file){.fd = -1};
    file->path = lk__strdup(path);
    if (!file->path)
        return LK_ERR_MEMORY;
    file->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    if (file->fd < 0 && (errno == ENXIO || errno == EACCES))
        file->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | flags); /* may be written and not read */
    struct stat status;
    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        int error = errno;
        refuse(path, "opened", error);
        lk__append_close(file);
        errno = error;
        return LK_ERR_IO;
    }
    file->regular = S_ISREG(status.st_mode);
    file->whole = file->regular ? (int64_t)status.st_size : 0;
    return LK_OK;
}

static void forget_hash(lk__append_file *file)
{
    XXH3_freeState(file->hash);
    file->hash = NULL;
    file->hashed = 0;
}

void lk__append_close(lk__append_file *file)
{
    forget_hash(file);
    if (file->fd >= 0)
        close(file->fd);
    lk__free(file->path);
    *file = (lk__append_file){.fd = -1};
}

/* 0, or errno. */
static int write_all(int fd, const unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        data += written;
        size -= (size_t)written;
    }
    return 0;
}

lk_status lk__append_cut(lk__append_file *file, int64_t size)
{
    if (file->regular && ftruncate(file->fd, (off_t)size) != 0)
        return refuse(file->path, "cut to its whole records", errno);
    if (size < file->hashed)
        forget_hash(file);
    file->whole = size;
    file->torn = false;
    return LK_OK;
}

/* Adds a file's bytes from `begin` on to *hash, which is made where there is none. False: they cannot be read. */
static bool hash_bytes(int fd, int64_t begin, int64_t end, XXH3_state_t **hash)
{
    unsigned char piece[1 << 16];
    if (!*hash && (*hash = XXH3_createState()))
        XXH3_64bits_reset(*hash);
    bool read = *hash != NULL;
    for (int64_t at = begin; at < end && read;) {
        ssize_t got = pread(fd, piece, end - at < (int64_t)sizeof piece ? (size_t)(end - at) : sizeof piece, at);
        if (got < 0 && errno == EINTR)
            continue;
        read = got > 0;
        if (read)
            XXH3_64bits_update(*hash, piece, (size_t)got);
        at += got;
    }
    return read;
}

lk__file_mark lk__append_mark(lk__append_file *file)
{
    lk__file_mark mark = {.bytes = -1};
    if (!file->regular || !hash_bytes(file->fd, file->hashed, file->whole, &file->hash)) {
        forget_hash(file);
        return mark;
    }
    mark.bytes = file->hashed = file->whole;
    mark.hash = XXH3_64bits_digest(file->hash);
    return mark;
}

bool lk__file_has_mark(const char *path, lk__file_mark mark)
{
    XXH3_state_t *hash = NULL;
    int fd = mark.bytes < 0 ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool has = fd >= 0 && hash_bytes(fd, 0, mark.bytes, &hash) && XXH3_64bits_digest(hash) == mark.hash;
    XXH3_freeState(hash);
    if (fd >= 0)
        close(fd);
    return has;
}

lk_status lk__append(lk__append_file *file, const void *data, size_t size)
{
    if (file->torn)
        LK_TRY(lk__append_cut(file, file->whole));
    int error = write_all(file->fd, data, size);
    if (error) {
        refuse(file->path, "written", error);
        file->torn = file->regular && ftruncate(file->fd, (off_t)file->whole) != 0;
        return LK_ERR_IO;
    }
    file->whole += (int64_t)size;
    return LK_OK;
}

lk_status lk__append_sync(lk__append_file *file)
{
    if (file->regular && fdatasync(file->fd) != 0)
        return refuse(file->path, "brought to disk", errno);
    return LK_OK;
}

lk_status lk__replace_file(const char *path, const void *data, size_t size)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof beside)
        LK_FAIL(LK_ERR_ARGUMENT, "the file's path has more than %d bytes: %.60s…", PATH_MAX - 20, path);
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return refuse(path, "written", errno);
    int error = write_all(fd, data, size);
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(beside, path) != 0)
        error = errno;
    if (!error)
        return LK_OK;
    unlink(beside);
    return refuse(path, "written", error);
}
