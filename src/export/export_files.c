#include "export/export_files.h"

#include "base/status.h"
#include "io/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool export_file_create(const char *path, bool is_folder)
{
    if (is_folder)
        return mkdir(path, 0777) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && close(fd) != 0) {
        int error = errno;
        unlink(path);
        errno = error;
        return false;
    }
    return fd >= 0;
}

static lk_status export_file_create_temporary(lk_export_file *file, bool is_folder)
{
    static atomic_uint made;
    do {
        if (snprintf(file->temporary, PATH_MAX, "%s.%ld-%u.tmp", file->path, (long)getpid(),
                     atomic_fetch_add(&made, 1)) >= PATH_MAX)
            LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", file->path);
        if (export_file_create(file->temporary, is_folder))
            return LK_OK;
    } while (errno == EEXIST);
    LK_FAIL(LK_ERR_IO, "%s: cannot be written: %s", file->path, strerror(errno));
}

/* --- files -------------------------------------------------------------------------------------------------------- */

lk_status lk__export_begin(lk_export_files *files, const char *path, const char **temporary)
{
    lk_export_file *file = &files->at[files->n];
    LK_TRY(lk__durable_target(path, file->path));
    LK_TRY(export_file_create_temporary(file, false));
    *temporary = file->temporary;
    files->n++;
    return LK_OK;
}

lk_status lk__export_put(lk_export_files *files, const char *path, const lk_bytes *bytes)
{
    const char *temporary;
    uint64_t hash;
    LK_TRY(lk__bytes_status(bytes));
    LK_TRY(lk__export_begin(files, path, &temporary));
    return lk__durable_create(temporary, bytes->data, bytes->size, &hash);
}

/* Gives the file its name. An old file of that name gets the temporary one, so that it can be put back; a file system
 * that cannot exchange names loses it. */
static lk_status export_file_name(lk_export_file *file)
{
    lk__keep_mode(file->temporary, file->path);
    file->has_exchanged = renameat2(AT_FDCWD, file->temporary, AT_FDCWD, file->path, RENAME_EXCHANGE) == 0;
    file->is_new = !file->has_exchanged && errno == ENOENT;
    if (!file->has_exchanged && rename(file->temporary, file->path) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be written: %s", file->path, strerror(errno));
    return LK_OK;
}

static void export_file_put_back(const lk_export_file *file)
{
    if (file->has_exchanged)
        renameat2(AT_FDCWD, file->path, AT_FDCWD, file->temporary, RENAME_EXCHANGE);
    else if (file->is_new)
        unlink(file->path);
}

lk_status lk__export_end(lk_export_files *files, lk_status status)
{
    int named = 0;
    while (named < files->n && status == LK_OK) {
        status = export_file_name(&files->at[named]);
        named += status == LK_OK;
    }
    bool all = status == LK_OK;
    while (!all && named > 0)
        export_file_put_back(&files->at[--named]);
    for (int i = 0; i < files->n && status == LK_OK; i++)
        status = lk__sync_parent(files->at[i].path); /* a link may lead to another folder */
    for (int i = 0; i < files->n; i++)
        unlink(files->at[i].temporary); /* the new file after a failure, or else the old one */
    return status;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

lk_status lk__export_begin_folder(const char *path, lk_export_file *folder)
{
    struct stat about;
    if (snprintf(folder->path, PATH_MAX, "%s", path) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    for (size_t length = strlen(folder->path); length > 1 && folder->path[length - 1] == '/';)
        folder->path[--length] = '\0';
    if (lstat(folder->path, &about) == 0)
        LK_FAIL(LK_ERR_IO, "%s: is there already; a SavedModel is written to a new folder", path);
    return export_file_create_temporary(folder, true);
}

lk_status lk__export_end_folder(const lk_export_file *folder, lk_status status)
{
    if (status == LK_OK)
        status = lk__sync_folder(folder->temporary);
    status = lk__durable_rename(folder->temporary, folder->path, status);
    if (status != LK_OK)
        lk__remove_folder(folder->temporary);
    return status;
}
