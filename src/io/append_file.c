#include "io/append_file.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "io/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static lk_status append_fail(const char *path, const char *what, int error)
{
    LK_FAIL(LK_ERR_IO, "%s cannot be %s: %s", path, what, strerror(error));
}

static int append_open_path(const char *path, int flags)
{
    struct stat status;
    if (stat(path, &status) == 0 && S_ISFIFO(status.st_mode))
        return lk__stream_open(path);
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666), first = errno;
    if (fd < 0 && (first == ENXIO || first == EACCES)) {
        fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | flags); /* a stream, or no read permission */
        if (fd < 0 && errno == ENOENT)
            errno = first;
    }
    return fd;
}

lk_status lk__append_open(lk_append_file *file, const char *path, int flags)
{
    *file = (lk_append_file){.fd = -1};
    file->path = lk__strdup(path);
    if (!file->path)
        return LK_ERR_MEMORY;
    file->fd = append_open_path(path, flags);
    struct stat status;
    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        int error = errno;
        append_fail(path, "opened", error);
        lk__append_close(file);
        errno = error;
        return LK_ERR_IO;
    }
    file->regular = S_ISREG(status.st_mode);
    file->whole = file->regular ? (int64_t)status.st_size : 0;
    /* The lock ends with the process. It belongs to the open file: a process that asks does not lose its own. */
    if (file->regular)
        (void)fcntl(file->fd, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET});
    return LK_OK;
}

bool lk__append_is_held(const char *path)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool held = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return held;
}

static void append_forget_hash(lk_append_file *file)
{
    XXH3_freeState(file->hash);
    file->hash = NULL;
    file->hashed = 0;
}

void lk__append_close(lk_append_file *file)
{
    append_forget_hash(file);
    if (file->fd >= 0)
        close(file->fd);
    lk__free(file->path);
    *file = (lk_append_file){.fd = -1};
}

lk_status lk__append_cut(lk_append_file *file, int64_t size)
{
    if (file->regular && ftruncate(file->fd, (off_t)size) != 0)
        return append_fail(file->path, "cut to its whole records", errno);
    if (size < file->hashed)
        append_forget_hash(file);
    file->whole = size;
    file->torn = false;
    return LK_OK;
}

/* Adds the file's bytes [begin, end) to *hash, which is created if it is NULL. False if they cannot be read. */
static bool append_hash_bytes(int fd, int64_t begin, int64_t end, XXH3_state_t **hash)
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

/* Flushes the file and, once, its name. A failure is ignored: a run that resumes from a checkpoint with the mark then
 * finds that the records have changed, and says so. */
static void append_flush(lk_append_file *file)
{
    fdatasync(file->fd);
    if (!file->is_name_flushed && lk__sync_parent(file->path) != LK_OK)
        lk_error_clear();
    file->is_name_flushed = true;
}

lk_file_mark lk__append_mark(lk_append_file *file)
{
    lk_file_mark mark = {.bytes = -1};
    bool is_new = !file->hash || file->hashed != file->whole; /* than the previous mark, which flushed the file */
    if (file->regular && is_new)
        append_flush(file);
    if (!file->regular || !append_hash_bytes(file->fd, file->hashed, file->whole, &file->hash)) {
        append_forget_hash(file);
        return mark;
    }
    mark.bytes = file->hashed = file->whole;
    mark.hash = XXH3_64bits_digest(file->hash);
    return mark;
}

bool lk__file_has_mark(const char *path, lk_file_mark mark)
{
    XXH3_state_t *hash = NULL;
    int fd = mark.bytes < 0 ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool has = fd >= 0 && append_hash_bytes(fd, 0, mark.bytes, &hash) && XXH3_64bits_digest(hash) == mark.hash;
    XXH3_freeState(hash);
    if (fd >= 0)
        close(fd);
    return has;
}

lk_status lk__append(lk_append_file *file, const void *data, size_t size)
{
    if (file->torn)
        LK_TRY(lk__append_cut(file, file->whole));
    int error = lk__write_whole(file->fd, data, size);
    if (error) {
        append_fail(file->path, "written", error);
        file->torn = file->regular && ftruncate(file->fd, (off_t)file->whole) != 0;
        return LK_ERR_IO;
    }
    file->whole += (int64_t)size;
    return LK_OK;
}

lk_status lk__append_sync(lk_append_file *file)
{
    if (file->regular && fdatasync(file->fd) != 0)
        return append_fail(file->path, "brought to disk", errno);
    return LK_OK;
}

lk_status lk__replace_file(const char *path, const void *data, size_t size)
{
    char target[PATH_MAX], temporary[PATH_MAX];
    bool is_stream;
    LK_TRY(lk__write_stream(path, data, size, &is_stream));
    if (is_stream)
        return LK_OK;
    LK_TRY(lk__durable_target(path, target));
    if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", target, (long)getpid()) >= (int)sizeof temporary)
        LK_FAIL(LK_ERR_ARGUMENT, "the file's path has more than %d bytes: %.60s…", PATH_MAX - 20, path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return append_fail(path, "written", errno);
    lk__keep_mode(temporary, target);
    int error = lk__write_whole(fd, data, size);
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(temporary, target) != 0)
        error = errno;
    if (!error)
        return LK_OK;
    unlink(temporary);
    return append_fail(path, "written", error);
}
