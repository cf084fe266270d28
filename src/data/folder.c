#include "data/folder.h"

#include "base/mem.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 16 }; /* of folders below a class's: links may lead back up */

bool lk__is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static lk_status join(char path[PATH_MAX], const char *folder, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_MAX)
        LK_FAIL(LK_ERR_IO, "%s/%.64s: the path is too long", folder, name);
    return LK_OK;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

static lk_status list_open_folder(DIR *stream, const char *path, lk__names *names)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry && errno)
            LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (!entry)
            return LK_OK;
        if (entry->d_name[0] != '.')
            LK_TRY(lk__names_add(names, entry->d_name));
    }
}

/* Sorted, so that all that follows is the same on every file system. */
static lk_status list_folder(const char *path, lk__names *names)
{
    DIR *stream = opendir(path);
    if (!stream)
        LK_FAIL(LK_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    lk_status status = list_open_folder(stream, path, names);
    closedir(stream);
    lk__names_sort(names);
    return status;
}

lk_status lk__list_folders(const char *path, lk__names *names)
{
    char below[PATH_MAX];
    lk__names all = {0};
    lk_status status = list_folder(path, &all);
    for (int64_t i = 0; status == LK_OK && i < all.count; i++) {
        status = join(below, path, all.at[i]);
        if (status == LK_OK && lk__is_folder(below))
            status = lk__names_add(names, all.at[i]);
    }
    lk__names_free(&all);
    return status;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static bool is_picture(const char *name)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".pnm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

static lk_status add_file(lk__folder *folder, const char *path, const struct stat *status, int label)
{
    if (folder->count == folder->capacity) {
        int64_t capacity = folder->capacity ? 2 * folder->capacity : 1024;
        lk__folder_file *grown = lk__realloc(folder->files, (size_t)capacity, sizeof *grown);
        if (!grown)
            return LK_ERR_MEMORY;
        folder->files = grown;
        folder->capacity = capacity;
    }
    char *copy = lk__strdup(path);
    if (!copy)
        return LK_ERR_MEMORY;
    folder->files[folder->count++] = (lk__folder_file){
        .path = copy,
        .bytes = status->st_size,
        .modified = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec,
        .label = label,
    };
    return LK_OK;
}

static lk_status scan_class(lk__folder *folder, const char *path, int label, int depth);

static lk_status scan_entry(lk__folder *folder, const char *path, int label, int depth)
{
    struct stat status;
    /* A link that leads nowhere is a file that cannot be opened: one picture that is broken, not the end of all. */
    if (stat(path, &status) != 0 && lstat(path, &status) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be examined: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return scan_class(folder, path, label, depth + 1);
    if (is_picture(path))
        return add_file(folder, path, &status, label);
    if (folder->others++ == 0)
        snprintf(folder->other, sizeof folder->other, "%s", path);
    return LK_OK;
}

static lk_status scan_names(lk__folder *folder, const char *path, const lk__names *names, int label, int depth)
{
    char below[PATH_MAX];
    for (int64_t i = 0; i < names->count; i++) {
        LK_TRY(join(below, path, names->at[i]));
        LK_TRY(scan_entry(folder, below, label, depth));
    }
    return LK_OK;
}

static lk_status scan_class(lk__folder *folder, const char *path, int label, int depth)
{
    if (depth > MAX_DEPTH)
        LK_FAIL(LK_ERR_FORMAT, "%s: more than %d folders below that of a class", path, MAX_DEPTH);
    lk__names names = {0};
    lk_status status = list_folder(path, &names);
    if (status == LK_OK)
        status = scan_names(folder, path, &names, label, depth);
    lk__names_free(&names);
    return status;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

/* Files lie class by class, in the order of their folders' names, then of their own. */
static lk_status take_turns(lk__folder *folder)
{
    typedef struct turn {
        int64_t next, end;
    } turn;
    lk__folder_file *mixed = lk__calloc((size_t)folder->count + 1, sizeof *mixed);
    turn *turns = lk__calloc((size_t)folder->classes.count, sizeof *turns);
    if (!mixed || !turns) {
        lk__free(mixed);
        lk__free(turns);
        return LK_ERR_MEMORY;
    }
    int64_t classes = 0, n = 0;
    for (int64_t i = 0; i < folder->count; i++) {
        if (i == 0 || folder->files[i].label != folder->files[i - 1].label)
            turns[classes++].next = i;
        turns[classes - 1].end = i + 1;
    }
    while (n < folder->count) {
        int64_t left = 0;
        for (int64_t i = 0; i < classes; i++) {
            mixed[n++] = folder->files[turns[i].next++];
            if (turns[i].next < turns[i].end)
                turns[left++] = turns[i];
        }
        classes = left;
    }
    lk__free(turns);
    lk__free(folder->files);
    folder->files = mixed;
    folder->capacity = folder->count + 1;
    return LK_OK;
}

static lk_status check_classes(const char *path, const lk__names *classes)
{
    if (classes->count < 1)
        LK_FAIL(LK_ERR_FORMAT, "%s: no folders in it; expected one for each class, with its pictures", path);
    if (classes->count > LK_MAX_CLASSES)
        LK_FAIL(LK_ERR_FORMAT, "%s: %" PRId64 " folders, expected one for each of at most %d classes", path,
                classes->count, LK_MAX_CLASSES);
    return LK_OK;
}

/* Both are sorted. */
static lk_status check_known(const char *path, const lk__names *classes)
{
    lk__names there = {0};
    lk_status status = lk__list_folders(path, &there);
    for (int64_t i = 0, c = 0; status == LK_OK && i < there.count; i++) {
        while (c < classes->count && strcmp(classes->at[c], there.at[i]) < 0)
            c++;
        if (c == classes->count || strcmp(classes->at[c], there.at[i]) != 0)
            status = lk__fail(LK_ERR_FORMAT, "%s/%s: the training set has no class of that name", path, there.at[i]);
    }
    lk__names_free(&there);
    return status;
}

static lk_status count_loose(lk__folder *folder, const char *path, const lk__names *names)
{
    char below[PATH_MAX];
    for (int64_t i = 0; i < names->count; i++) {
        if (!is_picture(names->at[i]))
            continue;
        LK_TRY(join(below, path, names->at[i]));
        if (!lk__is_folder(below) && folder->loose++ == 0)
            memcpy(folder->first_loose, below, sizeof below);
    }
    return LK_OK;
}

static lk_status look_for_loose(lk__folder *folder, const char *path)
{
    lk__names names = {0};
    lk_status status = list_folder(path, &names);
    if (status == LK_OK)
        status = count_loose(folder, path, &names);
    lk__names_free(&names);
    return status;
}

lk_status lk__folder_scan(const char *path, lk__folder *folder)
{
    char below[PATH_MAX];
    LK_TRY(check_classes(path, &folder->classes));
    LK_TRY(check_known(path, &folder->classes));
    LK_TRY(look_for_loose(folder, path));
    for (int label = 0; label < folder->classes.count; label++) {
        LK_TRY(join(below, path, folder->classes.at[label]));
        if (lk__is_folder(below))
            LK_TRY(scan_class(folder, below, label, 0));
    }
    if (folder->count == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: no pictures (.png, .jpg, .jpeg, .pgm, .ppm, .pnm) in its %" PRId64 " folders", path,
                folder->classes.count);
    return take_turns(folder);
}

void lk__folder_select(lk__folder *folder, const int64_t *indices, int64_t count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < folder->count; i++) {
        if (n < count && indices[n] == i)
            folder->files[n++] = folder->files[i];
        else
            lk__free(folder->files[i].path);
    }
    folder->count = n;
}

void lk__folder_free(lk__folder *folder)
{
    for (int64_t i = 0; i < folder->count; i++)
        lk__free(folder->files[i].path);
    lk__free(folder->files);
    lk__names_free(&folder->classes);
    *folder = (lk__folder){0};
}
