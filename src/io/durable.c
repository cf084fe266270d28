#include "io/durable.h"

#include "base/mem.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { SLOW_PIECE = 1 << 16, PIECE = 1 << 22, EARLY = 1 << 20 };

/* Milliseconds. */
static long slowness(void)
{
    const char *text = getenv("LOCKSTEP_CHECKPOINT_SLOW");
    long value = text ? strtol(text, NULL, 10) : 0;
    return value > 0 && value <= 60000 ? value : 0;
}

static void dawdle(void)
{
    long ms = slowness();
    if (ms > 0)
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static lk_status refuse(const char *path, const char *what, int error)
{
    LK_FAIL(LK_ERR_IO, "%s: cannot be %s: %s", path, what, strerror(error));
}

/* --- a file ------------------------------------------------------------------------------------------------------- */

lk_status lk__durable_open(lk__durable_file *file, const char *path)
{
    *file = (lk__durable_file){.fd = -1};
    file->path = lk__strdup(path);
    if (!file->path)
        return LK_ERR_MEMORY;
    XXH3_state_t *hash = XXH3_createState();
    file->hash = hash;
    if (!hash) {
        lk__durable_abandon(file);
        LK_FAIL(LK_ERR_MEMORY, "out of memory: the hash of %s", path);
    }
    XXH3_64bits_reset(hash);
    file->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->fd >= 0)
        return LK_OK;
    int error = errno;
    lk__durable_abandon(file);
    return refuse(path, "written", error);
}

void lk__durable_abandon(lk__durable_file *file)
{
    if (!file->path)
        return;
    if (file->fd >= 0)
        close(file->fd);
    XXH3_freeState(file->hash);
    lk__free(file->path);
    *file = (lk__durable_file){.fd = -1};
}

/* 0, or errno. */
static int write_all(int fd, const unsigned char *data, size_t bytes)
{
    size_t piece = slowness() > 0 ? SLOW_PIECE : PIECE;
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes < piece ? bytes : piece);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        data += written;
        bytes -= (size_t)written;
        if (written >= EARLY)
            sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* the disk begins; who waits for it is fsync */
        dawdle();
    }
    return 0;
}

lk_status lk__durable_put(lk__durable_file *file, const void *data, size_t bytes)
{
    XXH3_64bits_update(file->hash, data, bytes);
    int error = write_all(file->fd, data, bytes);
    if (error)
        return refuse(file->path, "written", error);
    file->bytes += (int64_t)bytes;
    return LK_OK;
}

lk_status lk__durable_finish(lk__durable_file *file, uint64_t *hash)
{
    int error = 0;
    dawdle();
    if (fsync(file->fd) != 0)
        error = errno;
    if (close(file->fd) != 0 && !error)
        error = errno;
    file->fd = -1;
    *hash = XXH3_64bits_digest(file->hash);
    lk_status status = error ? refuse(file->path, "brought to disk", error) : LK_OK;
    lk__durable_abandon(file);
    return status;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* File systems that cannot do that go without. */
lk_status lk__sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
    bool cannot = fd >= 0 && (error == EINVAL || error == EOPNOTSUPP);
    if (fd >= 0)
        close(fd);
    return error && !cannot ? refuse(folder, "brought to disk", error) : LK_OK;
}

static lk_status sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return lk__sync_folder(folder);
}

lk_status lk__durable_beside(const char *path, char beside[PATH_MAX])
{
    if (snprintf(beside, PATH_MAX, "%s.tmp", path) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    return LK_OK;
}

lk_status lk__durable_rename(const char *from, const char *to, lk_status status)
{
    if (status == LK_OK && rename(from, to) != 0)
        status = refuse(to, "written", errno);
    if (status != LK_OK) {
        unlink(from);
        return status;
    }
    dawdle();
    return sync_folder_of(to);
}

lk_status lk__durable_write(const char *path, const void *data, size_t bytes)
{
    char beside[PATH_MAX];
    lk__durable_file file;
    uint64_t hash;
    LK_TRY(lk__durable_beside(path, beside));
    LK_TRY(lk__durable_open(&file, beside));
    lk_status status = lk__durable_put(&file, data, bytes);
    if (status == LK_OK)
        status = lk__durable_finish(&file, &hash);
    lk__durable_abandon(&file);
    return lk__durable_rename(beside, path, status);
}

/* "DIR/NAME" becomes "DIR/.replaced-NAME". */
static lk_status replaced_path(const char *path, char replaced[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (snprintf(replaced, PATH_MAX, "%.*s" LK_REPLACED "%s", (int)(name - path), path, name) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    return LK_OK;
}

/* Where file systems know no exchange, as NFS: the old one is found, under one of its names, whenever this stops. */
static lk_status exchange_by_renaming(const char *from, const char *to)
{
    enum { TRIES = 100 };
    char aside[PATH_MAX];
    LK_TRY(replaced_path(to, aside));
    for (int tries = 1;; tries++) {
        if (rename(to, aside) != 0)
            return refuse(to, "replaced", errno);
        dawdle();
        if (rename(from, to) == 0)
            break;
        int error = errno;
        bool is_back = error == ENOTEMPTY || error == EEXIST; /* lk__durable_take_back, of another program */
        if (!is_back || tries == TRIES) {
            rename(aside, to);
            return refuse(to, "replaced", error);
        }
    }
    dawdle();
    return rename(aside, from) == 0 ? LK_OK : refuse(aside, "renamed", errno);
}

static lk_status exchange(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return LK_OK;
    bool cannot = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
    return cannot ? exchange_by_renaming(from, to) : refuse(to, "replaced", errno);
}

lk_status lk__durable_rename_folder(const char *from, const char *to, int *swapped)
{
    *swapped = 0;
    LK_TRY(lk__sync_folder(from));
    dawdle();
    if (rename(from, to) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            return refuse(to, "written", errno);
        LK_TRY(exchange(from, to));
        *swapped = 1;
    }
    dawdle();
    return sync_folder_of(to);
}

void lk__durable_take_back(const char *path)
{
    char replaced[PATH_MAX];
    if (access(path, F_OK) == 0)
        return;
    if (replaced_path(path, replaced) == LK_OK)
        rename(replaced, path);
    else
        lk_error_clear();
}

static bool is_itself(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

lk_status lk__check_removable(const char *folder)
{
    char path[PATH_MAX] = "";
    struct stat about;
    bool found = false;
    DIR *entries = opendir(folder);
    if (!entries)
        return errno == ENOENT ? LK_OK : refuse(folder, "removed", errno);
    for (struct dirent *entry; !found && (entry = readdir(entries));)
        found = !is_itself(entry->d_name) &&
                snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path &&
                lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
    closedir(entries);
    if (found)
        LK_FAIL(LK_ERR_IO, "%s: cannot be removed: %s is a folder, which somebody else has put there", folder, path);
    return LK_OK;
}

static bool is_link(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
}

lk_status lk__remove_folder(const char *folder)
{
    char path[PATH_MAX];
    if (is_link(folder))
        return unlink(folder) == 0 || errno == ENOENT ? LK_OK : refuse(folder, "removed", errno);
    LK_TRY(lk__check_removable(folder));
    DIR *entries = opendir(folder);
    if (!entries)
        return errno == ENOENT ? LK_OK : refuse(folder, "removed", errno);
    int error = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (is_itself(entry->d_name))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path || unlink(path) != 0)
            error = errno;
    }
    closedir(entries);
    if (rmdir(folder) != 0 && errno != ENOENT)
        return refuse(folder, "removed", error ? error : errno);
    return LK_OK;
}
