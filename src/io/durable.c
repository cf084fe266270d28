#include "io/durable.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "lockstep/record.h"

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

/* Returns the milliseconds in $LOCKSTEP_CHECKPOINT_SLOW, or 0. */
static long durable_slowness(void)
{
    const char *text = getenv("LOCKSTEP_CHECKPOINT_SLOW");
    long value = text ? strtol(text, NULL, 10) : 0;
    return value > 0 && value <= 60000 ? value : 0;
}

static void durable_delay(void)
{
    long ms = durable_slowness();
    if (ms > 0)
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static lk_status durable_fail(const char *path, const char *what, int error)
{
    LK_FAIL(LK_ERR_IO, "%s: cannot be %s: %s", path, what, strerror(error));
}

/* --- a file ------------------------------------------------------------------------------------------------------- */

lk_status lk__durable_open(lk_durable_file *file, const char *path)
{
    *file = (lk_durable_file){.fd = -1};
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
    file->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file->fd >= 0)
        return LK_OK;
    int error = errno;
    lk__durable_abandon(file);
    return durable_fail(path, "written", error);
}

void lk__durable_abandon(lk_durable_file *file)
{
    if (!file->path)
        return;
    if (file->fd >= 0)
        close(file->fd);
    XXH3_freeState(file->hash);
    lk__free(file->path);
    *file = (lk_durable_file){.fd = -1};
}

/* Returns 0 or an errno. */
static int durable_write_pieces(int fd, const unsigned char *data, size_t bytes)
{
    size_t piece = durable_slowness() > 0 ? SLOW_PIECE : PIECE;
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes < piece ? bytes : piece);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        data += written;
        bytes -= (size_t)written;
        if (written >= EARLY)
            sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* starts writing to disk; fsync waits for it later */
        durable_delay();
    }
    return 0;
}

lk_status lk__durable_put(lk_durable_file *file, const void *data, size_t bytes)
{
    XXH3_64bits_update(file->hash, data, bytes);
    int error = durable_write_pieces(file->fd, data, bytes);
    if (error)
        return durable_fail(file->path, "written", error);
    file->bytes += (int64_t)bytes;
    return LK_OK;
}

lk_status lk__durable_finish(lk_durable_file *file, uint64_t *hash)
{
    int error = 0;
    durable_delay();
    if (ftruncate(file->fd, file->bytes) != 0 || fsync(file->fd) != 0)
        error = errno;
    if (close(file->fd) != 0 && !error)
        error = errno;
    file->fd = -1;
    *hash = XXH3_64bits_digest(file->hash);
    lk_status status = error ? durable_fail(file->path, "brought to disk", error) : LK_OK;
    lk__durable_abandon(file);
    return status;
}

lk_status lk__durable_create(const char *path, const void *data, size_t bytes, uint64_t *hash)
{
    lk_durable_file file;
    LK_TRY(lk__durable_open(&file, path));
    lk_status status = lk__durable_put(&file, data, bytes);
    if (status == LK_OK)
        status = lk__durable_finish(&file, hash);
    lk__durable_abandon(&file);
    return status;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Returns 0 or an errno; 0 if the file system cannot flush a folder. */
static int durable_sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
    bool cannot = fd >= 0 && (error == EINVAL || error == EOPNOTSUPP);
    if (fd >= 0)
        close(fd);
    return cannot ? 0 : error;
}

lk_status lk__sync_folder(const char *folder)
{
    int error = durable_sync_folder(folder);
    return error ? durable_fail(folder, "brought to disk", error) : LK_OK;
}

static void durable_parent(const char *path, char parent[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(parent, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

lk_status lk__sync_parent(const char *path)
{
    char parent[PATH_MAX];
    durable_parent(path, parent);
    return lk__sync_folder(parent);
}

/* A new directory survives a power cut only once its parent is on disk, so that is flushed too. */
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
            char parent[PATH_MAX];
            durable_parent(part, parent);
            durable_sync_folder(parent); /* a failure is ignored */
        }
        if (!slash)
            return LK_OK;
        *slash = '/';
    }
}

lk_status lk__durable_temporary(const char *path, char temporary[PATH_MAX])
{
    if (snprintf(temporary, PATH_MAX, "%s.tmp", path) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    return LK_OK;
}

void lk__keep_mode(const char *from, const char *to)
{
    struct stat about;
    if (stat(to, &about) == 0 && S_ISREG(about.st_mode))
        (void)chmod(from, about.st_mode & 07777);
}

lk_status lk__durable_rename(const char *from, const char *to, lk_status status)
{
    if (status == LK_OK)
        lk__keep_mode(from, to);
    if (status == LK_OK && rename(from, to) != 0)
        status = durable_fail(to, "written", errno);
    if (status != LK_OK) {
        unlink(from);
        return status;
    }
    durable_delay();
    return lk__sync_parent(to);
}

lk_status lk__durable_target(const char *path, char target[PATH_MAX])
{
    struct stat about;
    if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        LK_FAIL(LK_ERR_IO, "%s: cannot be written: %s", path,
                S_ISDIR(about.st_mode) ? strerror(EISDIR) : "it is no file whose place another could take");
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode) && !realpath(path, target))
        LK_FAIL(LK_ERR_IO, "%s: leads nowhere: %s", path, strerror(errno));
    return LK_OK;
}

int lk__stream_open(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, 0);
    return fd;
}

lk_status lk__write_stream(const char *path, const void *data, size_t bytes, bool *is_stream)
{
    struct stat about;
    *is_stream = stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
    if (!*is_stream)
        return LK_OK;
    int fd = lk__stream_open(path), error = fd < 0 ? errno : lk__write_whole(fd, data, bytes);
    if (fd >= 0 && close(fd) != 0 && !error)
        error = errno;
    return error ? durable_fail(path, "written", error) : LK_OK;
}

lk_status lk__durable_write(const char *path, const void *data, size_t bytes)
{
    char target[PATH_MAX], temporary[PATH_MAX];
    uint64_t hash;
    bool is_stream;
    LK_TRY(lk__write_stream(path, data, bytes, &is_stream));
    if (is_stream)
        return LK_OK;
    LK_TRY(lk__durable_target(path, target));
    LK_TRY(lk__durable_temporary(target, temporary));
    return lk__durable_rename(temporary, target, lk__durable_create(temporary, data, bytes, &hash));
}

/* "DIR/NAME" becomes "DIR/.replaced-NAME". */
static lk_status durable_replaced_path(const char *path, char replaced[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (snprintf(replaced, PATH_MAX, "%.*s" LK_REPLACED "%s", (int)(name - path), path, name) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    return LK_OK;
}

/* For file systems without an atomic exchange, such as NFS. Whenever this is interrupted, the old folder still exists
 * under `to` or under its LK_REPLACED name. */
static lk_status durable_exchange_by_renaming(const char *from, const char *to)
{
    enum { TRIES = 100 };
    char replaced[PATH_MAX];
    LK_TRY(durable_replaced_path(to, replaced));
    for (int tries = 1;; tries++) {
        if (rename(to, replaced) != 0)
            return durable_fail(to, "replaced", errno);
        durable_delay();
        if (rename(from, to) == 0)
            break;
        int error = errno;
        bool is_back = error == ENOTEMPTY || error == EEXIST; /* another program has called lk__durable_restore */
        if (!is_back || tries == TRIES) {
            rename(replaced, to);
            return durable_fail(to, "replaced", error);
        }
    }
    durable_delay();
    return rename(replaced, from) == 0 ? LK_OK : durable_fail(replaced, "renamed", errno);
}

static lk_status durable_exchange_folders(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return LK_OK;
    bool cannot = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
    return cannot ? durable_exchange_by_renaming(from, to) : durable_fail(to, "replaced", errno);
}

lk_status lk__durable_rename_folder(const char *from, const char *to, bool *swapped)
{
    *swapped = false;
    LK_TRY(lk__sync_folder(from));
    durable_delay();
    if (rename(from, to) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            return durable_fail(to, "written", errno);
        LK_TRY(durable_exchange_folders(from, to));
        *swapped = true;
    }
    durable_delay();
    return lk__sync_parent(to);
}

void lk__durable_restore(const char *path)
{
    char replaced[PATH_MAX];
    if (access(path, F_OK) == 0)
        return;
    if (durable_replaced_path(path, replaced) == LK_OK)
        rename(replaced, path);
    else
        lk_error_clear();
}

static bool durable_is_dot_entry(const char *name)
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
        return errno == ENOENT ? LK_OK : durable_fail(folder, "removed", errno);
    for (struct dirent *entry; !found && (entry = readdir(entries));)
        found = !durable_is_dot_entry(entry->d_name) &&
                snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path &&
                lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
    closedir(entries);
    if (found)
        LK_FAIL(LK_ERR_IO, "%s: cannot be removed: %s is a folder, which somebody else has put there", folder, path);
    return LK_OK;
}

lk_status lk__remove_folder(const char *folder)
{
    char path[PATH_MAX];
    struct stat about;
    if (lstat(folder, &about) == 0 && S_ISLNK(about.st_mode))
        return unlink(folder) == 0 || errno == ENOENT ? LK_OK : durable_fail(folder, "removed", errno);
    LK_TRY(lk__check_removable(folder));
    DIR *entries = opendir(folder);
    if (!entries)
        return errno == ENOENT ? LK_OK : durable_fail(folder, "removed", errno);
    int error = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (durable_is_dot_entry(entry->d_name))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path || unlink(path) != 0)
            error = errno;
    }
    closedir(entries);
    if (rmdir(folder) != 0 && errno != ENOENT)
        return durable_fail(folder, "removed", error ? error : errno);
    return LK_OK;
}
