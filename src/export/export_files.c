#include "export/export_files.h"

#include "base/status.h"
#include "io/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool make(const char *path, bool is_folder)
{
    if (is_folder)
        return mkdir(path, 0777) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd >= 0 && close(fd) == 0;
}

static lk_status make_beside(lk__export_file *file, bool is_folder)
{
    static atomic_uint made;
    do {
        if (snprintf(file->beside, PATH_MAX, "%s.%ld-%u.tmp", file->place, (long)getpid(),
                     atomic_fetch_add(&made, 1)) >= PATH_MAX)
            LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", file->place);
        if (make(file->beside, is_folder))
            return LK_OK;
    } while (errno == EEXIST);
    LK_FAIL(LK_ERR_IO, "%s: cannot be written: %s", file->place, strerror(errno));
}

static lk_status take_place(const char *path, char place[PATH_MAX])
{
    if (snprintf(place, PATH_MAX, "%s", path) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    return LK_OK;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

lk_status lk__export_begin(lk__export_files *files, const char *path, const char **beside)
{
    struct stat there;
    lk__export_file *file = &files->at[files->n];
    LK_TRY(take_place(path, file->place));
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        LK_FAIL(LK_ERR_IO, "%s: cannot be written: %s", path,
                S_ISDIR(there.st_mode) ? strerror(EISDIR) : "it is no file whose place another could take");
    if (lstat(path, &there) == 0 && S_ISLNK(there.st_mode) && !realpath(path, file->place))
        LK_FAIL(LK_ERR_IO, "%s: leads nowhere: %s", path, strerror(errno));
    LK_TRY(make_beside(file, false));
    *beside = file->beside;
    files->n++;
    return LK_OK;
}

lk_status lk__export_put(lk__export_files *files, const char *path, const lk__bytes *bytes)
{
    const char *beside;
    lk__durable_file file;
    uint64_t hash;
    LK_TRY(lk__bytes_status(bytes));
    LK_TRY(lk__export_begin(files, path, &beside));
    LK_TRY(lk__durable_open(&file, beside));
    lk_status status = lk__durable_put(&file, bytes->data, bytes->size);
    if (status == LK_OK)
        status = lk__durable_finish(&file, &hash);
    lk__durable_abandon(&file);
    return status;
}

lk_status lk__export_end(lk__export_files *files, lk_status status)
{
    for (int i = 0; i < files->n; i++)
        status = lk__durable_rename(files->at[i].beside, files->at[i].place, status);
    return status;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

lk_status lk__export_begin_folder(const char *path, lk__export_file *folder)
{
    struct stat there;
    LK_TRY(take_place(path, folder->place));
    for (size_t length = strlen(folder->place); length > 1 && folder->place[length - 1] == '/';)
        folder->place[--length] = '\0';
    if (lstat(folder->place, &there) == 0)
        LK_FAIL(LK_ERR_IO, "%s: is there already; a SavedModel is written to a new folder", path);
    return make_beside(folder, true);
}

lk_status lk__export_end_folder(const lk__export_file *folder, lk_status status)
{
    if (status == LK_OK)
        status = lk__sync_folder(folder->beside);
    status = lk__durable_rename(folder->beside, folder->place, status);
    if (status != LK_OK)
        lk__remove_folder(folder->beside);
    return status;
}
